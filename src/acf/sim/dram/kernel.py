"""One cycle of a DRAM channel, compiled: refresh, one column and one row command, and the queues.

In every cycle of a channel, in this order: a request is accepted (`offer`); then `step` lets the refresh counter count,
issues at most one column and one row command (one of the two where there is one command bus), and hands one waiting
request to the queue of its bank. Arbitration among banks is round-robin, beginning after the bank of the last command.

A search that finds nothing notes from which cycle on it can find something if no queue and no row changes until then
(`column_from`, `row_from`, `hand_over`); whatever changes them clears the note. The cycles are the same as without.
"""

from acf.jit import compiled_in_place, inlined, int64
from acf.sim.dram.state import (
    ACTIVATES,
    ACTIVE_CYCLES,
    HITS,
    NEVER,
    READS,
    REFRESHES,
    WRITES,
    DramRules,
    DramState,
    Int64s,
    Requests,
    Sources,
)


@compiled_in_place
def offer(
    state: DramState,
    rules: DramRules,
    channel: int,
    places: Int64s,
    index: int,
    is_write: bool,
    cycle: int,
    completion: Int64s,
) -> bool:
    """Put request ``places[index]`` = (number, bank, row, column) into its channel; False where the queue is full.

    A read of what still waits in the write buffer is answered from there in the next cycle.
    """
    if is_write:
        count = state.write_count[channel]
        if count == rules.transaction_depth:
            return False
        for field in range(4):
            state.writes[channel, count, field] = places[index, field]
        state.write_count[channel] = count + 1
        state.hand_over[channel] = 1
        state.queue_changes[channel] += 1
        return True
    bank, row, column = places[index, 1], places[index, 2], places[index, 3]
    if waits_in(state.writes, channel, state.write_count[channel], bank, row, column):
        completion[places[index, 0]] = cycle + 1
        return True
    count = state.read_count[channel]
    if count == rules.transaction_depth:
        return False
    for field in range(4):
        state.reads[channel, count, field] = places[index, field]
    state.read_count[channel] = count + 1
    state.hand_over[channel] = 1
    return True


@inlined
def waits_in(queues: Int64s, channel: int, count: int, bank: int, row: int, column: int) -> bool:
    """Whether a channel's queue, of ``queues [channel, depth, 4]``, holds a request for the same burst."""
    found = False
    for index in range(count):
        same_row = queues[channel, index, 1] == bank and queues[channel, index, 2] == row
        if same_row and queues[channel, index, 3] == column:
            found = True
            break
    return found


@compiled_in_place
def step(state: DramState, rules: DramRules, channel: int, cycle: int, completion: Int64s) -> int:
    """Let one cycle pass in a channel; returns the requests whose burst was ordered in it (0 or 1)."""
    if cycle % rules.refresh_interval == 0 and cycle > 0:
        state.refresh_wanted[channel] = 1
    served = 0
    if state.refresh_wanted[channel]:
        refresh(state, rules, channel, cycle)
        wake(state, channel)
    elif state.waiting[channel]:
        if cycle >= state.column_from[channel]:
            served = column_command(state, rules, channel, cycle, completion)
        if cycle >= state.row_from[channel] and (served == 0 or rules.two_buses):
            row_command(state, rules, channel, cycle)
    if state.open_banks[channel]:
        state.counts[channel, ACTIVE_CYCLES] += 1
    if state.hand_over[channel]:
        state.hand_over[channel] = hand_to_bank(state, rules, channel)
    return served


@inlined
def is_quiet(state: DramState, rules: DramRules, channel: int, cycle: int) -> bool:
    """Whether `step` would do nothing but count an active cycle."""
    if state.refresh_wanted[channel] or state.hand_over[channel] or cycle % rules.refresh_interval == 0:
        return False
    if state.waiting[channel] == 0:
        return True
    return bool(cycle < state.column_from[channel] and cycle < state.row_from[channel])


@inlined
def wake(state: DramState, channel: int) -> None:
    """Clear what was noted of commands: a queue of a bank or an open row has changed."""
    state.column_from[channel] = 0
    state.row_from[channel] = 0


@compiled_in_place
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
    read_ready = state.group_read_ready[channel, rules.groups]
    write_ready = state.group_write_ready[channel, rules.groups]
    if cycle < read_ready and cycle < write_ready:
        state.column_from[channel] = min(read_ready, write_ready)
        return 0
    banks = state.open_row.shape[1]
    first = state.turn[channel]
    possible = NEVER
    for offset in range(banks):
        bank = first + offset
        if bank >= banks:
            bank -= banks
        if state.open_row[channel, bank] < 0 or state.bank_count[channel, bank] == 0:
            continue
        if cycle < state.column_ready[channel, bank]:
            possible = min(possible, state.column_ready[channel, bank])
            continue
        index = first_hit(state, channel, bank)
        if index < 0:
            continue
        group = bank // rules.banks_per_group
        if state.bank_queue[channel, bank, index, 2]:
            ready = max(write_ready, state.group_write_ready[channel, group])
        else:
            ready = max(read_ready, state.group_read_ready[channel, group])
        if cycle < ready:
            possible = min(possible, ready)
            continue
        take_column(state, rules, channel, bank, index, cycle, completion)
        state.turn[channel] = bank + 1 if bank + 1 < banks else 0
        wake(state, channel)
        if state.read_count[channel] or state.write_count[channel]:
            state.hand_over[channel] = 1
        return 1
    state.column_from[channel] = possible
    return 0


@inlined
def delay(ready: Int64s, channel: int, place: int, cycle: int) -> None:
    """Allow a command no earlier than ``cycle``."""
    ready[channel, place] = max(ready[channel, place], cycle)


@inlined
def take_column(
    state: DramState, rules: DramRules, channel: int, bank: int, index: int, cycle: int, completion: Int64s
) -> None:
    """Issue the column command of a request and take it out of the bank's queue."""
    number, is_write = state.bank_queue[channel, bank, index, 0], state.bank_queue[channel, bank, index, 2]
    groups, group = rules.groups, bank // rules.banks_per_group
    if is_write:
        completion[number] = cycle + rules.write_done
        until_precharge = cycle + rules.write_to_precharge
        state.counts[channel, WRITES] += 1
        delay(state.group_write_ready, channel, groups, cycle + rules.column_other_group)
        delay(state.group_write_ready, channel, group, cycle + rules.column_same_group)
        delay(state.group_read_ready, channel, groups, cycle + rules.write_to_read_other_group)
        delay(state.group_read_ready, channel, group, cycle + rules.write_to_read_same_group)
    else:
        completion[number] = cycle + rules.read_done
        until_precharge = cycle + rules.read_to_precharge
        state.counts[channel, READS] += 1
        delay(state.group_read_ready, channel, groups, cycle + rules.column_other_group)
        delay(state.group_read_ready, channel, group, cycle + rules.column_same_group)
        delay(state.group_write_ready, channel, groups, cycle + rules.read_to_write)
    state.precharge_ready[channel, bank] = max(state.precharge_ready[channel, bank], until_precharge)
    if state.hits[channel, bank]:
        state.counts[channel, HITS] += 1
    state.hits[channel, bank] += 1
    last = state.bank_count[channel, bank] - 1
    for place in range(index, last):
        for field in range(3):
            state.bank_queue[channel, bank, place, field] = state.bank_queue[channel, bank, place + 1, field]
    state.bank_count[channel, bank] = last
    state.waiting[channel] -= 1


@inlined
def row_command(state: DramState, rules: DramRules, channel: int, cycle: int) -> None:
    """Activate the row, or close the wrong one, that the oldest request of some bank waits for."""
    banks = state.open_row.shape[1]
    first = state.turn[channel]
    window_opens = state.activates[channel, state.next_activate[channel]] + rules.four_activates
    channel_ready = max(window_opens, state.group_activate_ready[channel, rules.groups])
    possible = NEVER
    for offset in range(banks):
        bank = first + offset
        if bank >= banks:
            bank -= banks
        if state.bank_count[channel, bank] == 0:
            continue
        wanted = state.bank_queue[channel, bank, 0, 1]
        if state.open_row[channel, bank] < 0:
            group_ready = state.group_activate_ready[channel, bank // rules.banks_per_group]
            ready = max(channel_ready, max(state.activate_ready[channel, bank], group_ready))
            if cycle < ready:
                possible = min(possible, ready)
                continue
            open_bank(state, rules, channel, bank, wanted, cycle)
        else:
            if state.open_row[channel, bank] == wanted:
                continue
            if cycle < state.precharge_ready[channel, bank]:
                possible = min(possible, state.precharge_ready[channel, bank])
                continue
            if state.hits[channel, bank] < rules.row_hit_limit and first_hit(state, channel, bank) >= 0:
                continue
            close_row(state, rules, channel, bank, cycle)
        state.turn[channel] = bank + 1 if bank + 1 < banks else 0
        wake(state, channel)
        return
    state.row_from[channel] = possible


@inlined
def open_bank(state: DramState, rules: DramRules, channel: int, bank: int, row: int, cycle: int) -> None:
    """Activate one row."""
    state.open_row[channel, bank] = row
    state.hits[channel, bank] = 0
    state.open_banks[channel] += 1
    state.activate_ready[channel, bank] = cycle + rules.activate_to_activate
    state.column_ready[channel, bank] = cycle + rules.activate_to_column
    state.precharge_ready[channel, bank] = cycle + rules.activate_to_precharge
    state.group_activate_ready[channel, rules.groups] = cycle + rules.activate_other_group
    state.group_activate_ready[channel, bank // rules.banks_per_group] = cycle + rules.activate_same_group
    oldest = state.next_activate[channel]
    state.activates[channel, oldest] = cycle
    state.next_activate[channel] = (oldest + 1) % 4
    state.counts[channel, ACTIVATES] += 1


@inlined
def hand_to_bank(state: DramState, rules: DramRules, channel: int) -> int:
    """Move the oldest read (write, while the write buffer drains) whose bank has room into that bank's queue.

    Returns 1 where the next cycle may move another, 0 where none can go before something else happens.

    The buffer drains, as far as it is full at that moment, when it is full, or when no read waits and it is half
    full or the banks have nothing else to do. A write never overtakes an older read of the same burst.
    """
    writes = state.write_count[channel]
    if state.draining[channel] == 0 and writes > 0:
        idle = state.read_count[channel] == 0 and (2 * writes >= rules.transaction_depth or state.waiting[channel] == 0)
        if idle or writes == rules.transaction_depth:
            state.draining[channel] = writes
    if state.draining[channel] > 0:
        outcome = move_first(state, rules, channel, state.writes, state.write_count, True)
        if outcome == 1:
            state.draining[channel] -= 1
        if outcome >= 0:
            return outcome
    return move_first(state, rules, channel, state.reads, state.read_count, False)


@inlined
def move_first(state: DramState, rules: DramRules, channel: int, queue: Int64s, counts: Int64s, is_write: bool) -> int:
    """1: a request moved; 0: all banks wanted are full; -1: a write waits for an older read of its burst."""
    count = counts[channel]
    for index in range(count):
        number, bank = queue[channel, index, 0], queue[channel, index, 1]
        row, column = queue[channel, index, 2], queue[channel, index, 3]
        filled = state.bank_count[channel, bank]
        if filled == rules.bank_depth:
            continue
        if is_write and waits_in(state.reads, channel, state.read_count[channel], bank, row, column):
            return -1
        state.bank_queue[channel, bank, filled, 0] = number
        state.bank_queue[channel, bank, filled, 1] = row
        state.bank_queue[channel, bank, filled, 2] = is_write
        state.bank_count[channel, bank] = filled + 1
        state.waiting[channel] += 1
        for place in range(index, count - 1):
            for field in range(4):
                queue[channel, place, field] = queue[channel, place + 1, field]
        counts[channel] = count - 1
        state.queue_changes[channel] += 1
        wake(state, channel)
        return 1
    return 0


@compiled_in_place
def run_requests(
    state: DramState, rules: DramRules, requests: Requests, sources: Sources, accepted: Int64s, completion: Int64s
) -> int:
    """Play requests to their end; writes the cycle at which each is accepted and complete, returns all cycles.

    Every source offers its oldest request once per cycle; one that was refused is not asked again before the queues of
    its channel have changed. Cycles in which all queues are empty are skipped.
    """
    channels = state.open_row.shape[0]
    left = requests.places.shape[0]
    cycle = int64(0)
    while left > 0:
        answered, soonest = offer_all(state, rules, requests, sources, cycle, accepted, completion)
        left -= answered
        busy = False
        for channel in range(channels):
            if is_quiet(state, rules, channel, cycle):
                if state.open_banks[channel]:
                    state.counts[channel, ACTIVE_CYCLES] += 1
            else:
                left -= step(state, rules, channel, cycle, completion)
            busy |= state.waiting[channel] + state.read_count[channel] + state.write_count[channel] > 0
            busy |= state.refresh_wanted[channel] > 0
        cycle += 1
        if not busy and soonest > cycle and left > 0:
            next_refresh = (cycle + rules.refresh_interval - 1) // rules.refresh_interval * rules.refresh_interval
            target = min(soonest, max(next_refresh, cycle))
            for channel in range(channels):
                if state.open_banks[channel]:
                    state.counts[channel, ACTIVE_CYCLES] += target - cycle
            cycle = target
    return cycle


@inlined
def offer_all(state, rules, requests, sources, cycle, accepted, completion):  # type: ignore[no-untyped-def]
    """Offer the oldest request of every source, in turn.

    Returns the requests that were answered at once, and the cycle in which the next one arrives: this one where a
    source has one to offer.
    """
    count, answered = sources.cursor.size, 0
    soonest = cycle + rules.refresh_interval
    source = cycle % count
    for _ in range(count):
        index = sources.cursor[source]
        if index < requests.first_of_source[source + 1]:
            number = requests.places[index, 0]
            channel = requests.channels[number]
            if requests.arrival[number] > cycle:
                soonest = min(soonest, requests.arrival[number])
            else:
                soonest = cycle
                if sources.refused[source] != state.queue_changes[channel]:
                    is_write = requests.is_write[number] != 0
                    if offer(state, rules, channel, requests.places, index, is_write, cycle, completion):
                        accepted[number] = cycle
                        sources.cursor[source] = index + 1
                        sources.refused[source] = -1
                        if completion[number] > 0:
                            answered += 1
                    else:
                        sources.refused[source] = state.queue_changes[channel]
        source = source + 1 if source + 1 < count else 0
    return answered, soonest
