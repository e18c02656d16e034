// Tile instructions (AMX) of compiled code on a processor without them: the handler of the signal that they raise
// computes them in software. So the product's own machine code runs, as its compiler made it.
#include <signal.h>
#include <ucontext.h>

#include "tiles_in_software.h"

namespace in_software {

struct sigaction before;
Configuration last_configuration;

// A three-byte VEX instruction of opcode map 0F38: c4, RXB and map, W vvvv L pp, opcode, ModRM, perhaps SIB and offset.
struct Instruction {
    const uint8_t* code;
    const greg_t* registers;

    bool is_vex_0f38() const { return code[0] == 0xc4 && (code[1] & 0x1f) == 2 && (code[2] & 0x84) == 0; }
    int prefix() const { return code[2] & 3; }  // 0: none, 1: 66, 2: f3, 3: f2
    int opcode() const { return code[3]; }
    int mode() const { return code[4] >> 6; }
    int reg() const { return code[4] >> 3 & 7; }
    int rm() const { return code[4] & 7; }
    int vvvv() const { return ~code[2] >> 3 & 15; }
    bool has_sib() const { return mode() != 3 && rm() == 4; }
    bool has_no_base() const { return mode() == 0 && (has_sib() ? code[5] & 7 : rm()) == 5; }
    int offset_bytes() const { return mode() == 1 ? 1 : mode() == 2 || has_no_base() ? 4 : 0; }
    int length() const { return 5 + has_sib() + (mode() == 3 ? 0 : offset_bytes()); }

    int64_t value_of(int number) const {
        static const int places[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                       REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
        return registers[places[number]];
    }
    int64_t offset() const {
        const uint8_t* at = code + 5 + has_sib();
        int32_t wide = 0;
        if (offset_bytes() == 1) return static_cast<int8_t>(*at);
        memcpy(&wide, at, offset_bytes());
        return wide;
    }
    int64_t base() const {
        if (has_no_base()) return has_sib() ? 0 : registers[REG_RIP] + length();
        return value_of((has_sib() ? code[5] & 7 : rm()) | (code[1] & 0x20 ? 0 : 8));
    }
    int64_t stride() const {  // of tile rows: index and scale
        const int index = has_sib() ? (code[5] >> 3 & 7) | (code[1] & 0x40 ? 0 : 8) : 4;
        return index == 4 ? 0 : value_of(index) << (code[5] >> 6);
    }
    char* address() const { return reinterpret_cast<char*>(base() + offset()); }
};

// Whether it is an instruction of AMX.
bool execute(const Instruction& i) {
    if (!i.is_vex_0f38()) return false;
    const bool in_memory = i.mode() != 3;
    switch (i.opcode() << 4 | i.prefix()) {
        case 0x490:
            if (!in_memory) return release(), true;
            load_configuration(i.address() + i.stride());
            last_configuration = configuration;
            return true;
        case 0x493: zero(i.reg()); return !in_memory;
        case 0x4b1:  // with a hint
        case 0x4b3: load(i.reg(), i.address(), i.stride()); return in_memory;
        case 0x4b2: store(i.reg(), i.address(), i.stride()); return in_memory;
        case 0x5c2: multiply_pairs(i.reg(), i.rm(), i.vvvv()); return !in_memory;
    }
    return false;
}

void handle(int signal, siginfo_t*, void* context) {
    greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    const Instruction instruction = {reinterpret_cast<const uint8_t*>(registers[REG_RIP]), registers};
    if (execute(instruction))
        registers[REG_RIP] += instruction.length();
    else
        sigaction(signal, &before, nullptr);  // comes again, and is not ours
}

}  // namespace in_software

#pragma GCC visibility push(default)
extern "C" {
int trap_tiles() {
    struct sigaction action = {};
    action.sa_sigaction = in_software::handle;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGILL, &action, &in_software::before);
}

// The 64 bytes of the latest.
void read_configuration(void* to) { memcpy(to, &in_software::last_configuration, 64); }
}
