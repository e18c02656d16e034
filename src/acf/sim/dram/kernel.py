"""One cycle of a DRAM channel, compiled: refresh, one column and one row command, and the queues.

In every cycle of a channel, in this order: a request is accepted (`offer`); then `step` lets the refresh counter count,
issues at most one column and one row command (one of the two where there is one command bus), and hands one waiting
request to the queue of its bank. Arbitration among banks is round-robin, beginning after the bank of the last command.
"""

from acf.jit import compiled, inlined, int64
from acf.sim.dram.state import (
    ACTIVATES,
    ACTIVE_CYCLES,
    HITS,
    READS,
    REFRESHES,
    WRITES,
    DramRules,
    DramState,
    Int64s,
    Requests,
)


@compiled
def offer(
    state: DramState, rules: DramRules, channel: int, place: Int64s, is_write: bool, cycle: int, completion: Int64s
) -> bool:
    """Put a request, ``place`` = (number, bank, row, column), into its channel; False where the queue is full.

    A read of what still waits in the write buffer is answered from there in the next cycle.
    """
    if is_write:
        count = state.write_count[channel]
        if count == rules.transaction_depth:
            return False
        state.writes[channel, count] = place
        state.write_count[channel] = count + 1
        return True
    if waits_in(state.writes[channel], state.write_count[channel], place):
        completion[place[0]] = cycle + 1
        return True
    count = state.read_count[channel]
    if count == rules.transaction_depth:
        return False
    state.reads[channel, count] = place
    state.read_count[channel] = count + 1
    return True


@compiled
def waits_in(queue: Int64s, count: int, place: Int64s) -> bool:
    """Whether a queue ``[depth, 4]`` holds a request for the same burst."""
    for index in range(count):
        if queue[index, 1] == place[1] and queue[index, 2] == place[2] and queue[index, 3] == place[3]:
            return True
    return False


@compiled
def step(state: DramState, rules: DramRules, channel: int, cycle: int, completion: Int64s) -> int:
    """Let one cycle pass in a channel; returns the requests whose burst was ordered in it (0 or 1)."""
    if cycle % rules.refresh_interval == 0 and cycle > 0:
        state.refresh_wanted[channel] = 1
    served = 0
    if state.refresh_wanted[channel]:
        refresh(state, rules, channel, cycle)
    elif state.waiting[channel]:
        served = column_command(state, rules, channel, cycle, completion)
        if served == 0 or rules.two_buses:
            row_command(state, rules, channel, cycle)
    if state.open_banks[channel]:
        state.counts[channel, ACTIVE_CYCLES] += 1
    if state.read_count[channel] or state.write_count[channel]:
        hand_to_bank(state, rules, channel)
    return served


@compiled
def refresh(state: DramState, rules: DramRules, channel: int, cycle: int) -> None:
    """Precharge all banks as soon as all of them may be, then refresh them together as soon as that may be."""
    banks = state.open_row.shape[1]
    if state.open_banks[channel]:
        for bank in range(banks):
            if state.open_row[channel, bank] >= 0 and state.precharge_ready[channel, bank] > cycle:
                return
        for bank in range(banks):
            if state.open_row[channel, bank] >= 0:
                close_row(state, rules, channel, bank, cycle)
        return
    for bank in range(banks):
        if state.activate_ready[channel, bank] > cycle:
            return
    for bank in range(banks):
        state.activate_ready[channel, bank] = cycle + rules.refresh
    state.refresh_wanted[channel] = 0
    state.counts[channel, REFRESHES] += 1


@inlined
def close_row(state: DramState, rules: DramRules, channel: int, bank: int, cycle: int) -> None:
    """Precharge one bank."""
    state.open_row[channel, bank] = -1
    state.hits[channel, bank] = 0
    state.open_banks[channel] -= 1
    ready = cycle + rules.precharge_to_activate
    state.activate_ready[channel, bank] = max(state.activate_ready[channel, bank], ready)


@inlined
def first_hit(state: DramState, channel: int, bank: int) -> int:
    """Place in the bank's queue of its oldest request for the open row; -1 without one."""
    row = state.open_row[channel, bank]
    for index in range(state.bank_count[channel, bank]):
        if state.bank_queue[channel, bank, index, 1] == row:
            return index
    return -1


@inlined
def column_command(state: DramState, rules: DramRules, channel: int, cycle: int, completion: Int64s) -> int:
    """Read or write a burst of an open row, if a bank has one that may go; returns how many (0 or 1)."""
    groups = rules.groups
    read_ready, write_ready = state.group_read_ready[channel], state.group_write_ready[channel]
    if cycle < read_ready[groups] and cycle < write_ready[groups]:
        return 0
    banks = state.open_row.shape[1]
    first = state.turn[channel]
    for offset in range(banks):
        bank = first + offset
        if bank >= banks:
            bank -= banks
        if state.open_row[channel, bank] < 0 or cycle < state.column_ready[channel, bank]:
            continue
        index = first_hit(state, channel, bank)
        if index < 0:
            continue
        group = bank // rules.banks_per_group
        ready = write_ready if state.bank_queue[channel, bank, index, 2] else read_ready
        if cycle < ready[groups] or cycle < ready[group]:
            continue
        take_column(state, rules, channel, bank, index, cycle, completion)
        state.turn[channel] = bank + 1 if bank + 1 < banks else 0
        return 1
    return 0


@inlined
def take_column(
    state: DramState, rules: DramRules, channel: int, bank: int, index: int, cycle: int, completion: Int64s
) -> None:
    """Issue the column command of a request and take it out of the bank's queue."""
    queue, groups, group = state.bank_queue[channel, bank], rules.groups, bank // rules.banks_per_group
    read_ready, write_ready = state.group_read_ready[channel], state.group_write_ready[channel]
    if queue[index, 2]:
        completion[queue[index, 0]] = cycle + rules.write_done
        until_precharge = cycle + rules.write_to_precharge
        state.counts[channel, WRITES] += 1
        write_ready[groups] = max(write_ready[groups], cycle + rules.column_other_group)
        write_ready[group] = max(write_ready[group], cycle + rules.column_same_group)
        read_ready[groups] = max(read_ready[groups], cycle + rules.write_to_read_other_group)
        read_ready[group] = max(read_ready[group], cycle + rules.write_to_read_same_group)
    else:
        completion[queue[index, 0]] = cycle + rules.read_done
        until_precharge = cycle + rules.read_to_precharge
        state.counts[channel, READS] += 1
        read_ready[groups] = max(read_ready[groups], cycle + rules.column_other_group)
        read_ready[group] = max(read_ready[group], cycle + rules.column_same_group)
        write_ready[groups] = max(write_ready[groups], cycle + rules.read_to_write)
    state.precharge_ready[channel, bank] = max(state.precharge_ready[channel, bank], until_precharge)
    if state.hits[channel, bank]:
        state.counts[channel, HITS] += 1
    state.hits[channel, bank] += 1
    last = state.bank_count[channel, bank] - 1
    for place in range(index, last):
        queue[place] = queue[place + 1]
    state.bank_count[channel, bank] = last
    state.waiting[channel] -= 1


@inlined
def row_command(state: DramState, rules: DramRules, channel: int, cycle: int) -> None:
    """Activate the row, or close the wrong one, that the oldest request of some bank waits for."""
    banks = state.open_row.shape[1]
    first = state.turn[channel]
    window_open = state.activates[channel, state.next_activate[channel]] + rules.four_activates <= cycle
    may_activate = window_open and cycle >= state.group_activate_ready[channel, rules.groups]
    for offset in range(banks):
        bank = first + offset
        if bank >= banks:
            bank -= banks
        if state.bank_count[channel, bank] == 0:
            continue
        wanted = state.bank_queue[channel, bank, 0, 1]
        if state.open_row[channel, bank] < 0:
            group_ready = state.group_activate_ready[channel, bank // rules.banks_per_group]
            if not may_activate or cycle < state.activate_ready[channel, bank] or cycle < group_ready:
                continue
            open_bank(state, rules, channel, bank, wanted, cycle)
        else:
            if state.open_row[channel, bank] == wanted or cycle < state.precharge_ready[channel, bank]:
                continue
            if state.hits[channel, bank] < rules.row_hit_limit and first_hit(state, channel, bank) >= 0:
                continue
            close_row(state, rules, channel, bank, cycle)
        state.turn[channel] = bank + 1 if bank + 1 < banks else 0
        return


@inlined
def open_bank(state: DramState, rules: DramRules, channel: int, bank: int, row: int, cycle: int) -> None:
    """Activate one row."""
    state.open_row[channel, bank] = row
    state.hits[channel, bank] = 0
    state.open_banks[channel] += 1
    state.activate_ready[channel, bank] = cycle + rules.activate_to_activate
    state.column_ready[channel, bank] = cycle + rules.activate_to_column
    state.precharge_ready[channel, bank] = cycle + rules.activate_to_precharge
    ready, group = state.group_activate_ready[channel], bank // rules.banks_per_group
    ready[rules.groups] = cycle + rules.activate_other_group
    ready[group] = cycle + rules.activate_same_group
    oldest = state.next_activate[channel]
    state.activates[channel, oldest] = cycle
    state.next_activate[channel] = (oldest + 1) % 4
    state.counts[channel, ACTIVATES] += 1


@inlined
def hand_to_bank(state: DramState, rules: DramRules, channel: int) -> None:
    """Move the oldest read (write, while the write buffer drains) whose bank has room into that bank's queue.

    The buffer drains, as far as it is full at that moment, when it is full, or when no read waits and it is half
    full or the banks have nothing else to do. A write never overtakes an older read of the same burst.
    """
    writes = state.write_count[channel]
    if state.draining[channel] == 0 and writes > 0:
        idle = state.read_count[channel] == 0 and (2 * writes >= rules.transaction_depth or state.waiting[channel] == 0)
        if idle or writes == rules.transaction_depth:
            state.draining[channel] = writes
    if state.draining[channel] > 0:
        outcome = move_first(state, rules, channel, state.writes[channel], state.write_count, True)
        if outcome == 1:
            state.draining[channel] -= 1
        if outcome >= 0:
            return
    move_first(state, rules, channel, state.reads[channel], state.read_count, False)


@inlined
def move_first(state: DramState, rules: DramRules, channel: int, queue: Int64s, counts: Int64s, is_write: bool) -> int:
    """1: a request moved; 0: all banks wanted are full; -1: a write waits for an older read of its burst."""
    count = counts[channel]
    for index in range(count):
        bank = queue[index, 1]
        filled = state.bank_count[channel, bank]
        if filled == rules.bank_depth:
            continue
        if is_write and waits_in(state.reads[channel], state.read_count[channel], queue[index]):
            return -1
        entry = state.bank_queue[channel, bank, filled]
        entry[0], entry[1], entry[2] = queue[index, 0], queue[index, 2], is_write
        state.bank_count[channel, bank] = filled + 1
        state.waiting[channel] += 1
        for place in range(index, count - 1):
            queue[place] = queue[place + 1]
        counts[channel] = count - 1
        return 1
    return 0


@compiled
def run_requests(state: DramState, rules: DramRules, requests: Requests, accepted: Int64s, completion: Int64s) -> int:
    """Play requests to their end; writes the cycle at which each is accepted and complete, returns all cycles.

    Every source offers its oldest request once per cycle. Cycles in which all queues are empty are skipped.
    """
    places, first_of_source, arrival = requests.places, requests.first_of_source, requests.arrival
    sources = first_of_source.size - 1
    cursor = first_of_source[:-1].copy()
    left = places.shape[0]
    cycle = int64(0)
    while left > 0:
        soonest = cycle + rules.refresh_interval
        for offset in range(sources):
            source = (offset + cycle) % sources
            index = cursor[source]
            if index == first_of_source[source + 1]:
                continue
            number = places[index, 0]
            if arrival[number] > cycle:
                soonest = min(soonest, arrival[number])
                continue
            soonest = cycle
            writes = requests.is_write[number] != 0
            if offer(state, rules, requests.channels[number], places[index], writes, cycle, completion):
                accepted[number] = cycle
                cursor[source] = index + 1
                if completion[number] > 0:
                    left -= 1
        busy = False
        for channel in range(state.open_row.shape[0]):
            left -= step(state, rules, channel, cycle, completion)
            busy |= state.waiting[channel] + state.read_count[channel] + state.write_count[channel] > 0
            busy |= state.refresh_wanted[channel] > 0
        cycle += 1
        if not busy and soonest > cycle and left > 0:
            next_refresh = (cycle + rules.refresh_interval - 1) // rules.refresh_interval * rules.refresh_interval
            target = min(soonest, max(next_refresh, cycle))
            for channel in range(state.open_row.shape[0]):
                if state.open_banks[channel]:
                    state.counts[channel, ACTIVE_CYCLES] += target - cycle
            cycle = target
    return cycle
