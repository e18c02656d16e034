"""A step whose device moves blocks at its end: scores of weights and gradients, then a topology update.

Weight gradients are computed for all blocks, present or not. Memory is laid out for any topology, so that the next step
runs from the same descriptors over the index that the device has written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acf.errors import RtlError
from acf.lowering.descriptor import DESCRIPTOR_BYTES as PRODUCT_BYTES
from acf.lowering.descriptor import WORD_BYTES, ProductDescriptor
from acf.lowering.split_k import SplitKMapping
from acf.rtl.design.axi.spec import PAGE_BYTES, AxiSpec
from acf.rtl.design.fabric.encoding import EncodedProgram
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.index.indexed_program import IndexedProgram
from acf.rtl.device.host.descriptor_image import walked_streams, walking_registers
from acf.rtl.device.host.image import MemoryImage
from acf.rtl.device.host.placed_product import DATAFLOWS, PlacedMatrix, map_dense, placed_results
from acf.rtl.device.host.simulation import DeviceSimulation
from acf.rtl.device.step.layer import StepSizes, StepState
from acf.rtl.device.step.passes import Tile
from acf.rtl.device.step.plan import ListEntry, StepPlan, WalkedPlanner
from acf.rtl.device.step.reference import StepResult, reference_step, weight_gradient_of
from acf.rtl.device.step.run import StepRun, load_update_constants, read_step, resume_step, run_step
from acf.rtl.device.topology.descriptor import NO_SLOT, SCORE_FLITS, TopologyDescriptor
from acf.rtl.device.topology.model import block_scores, move_blocks
from acf.rtl.device.topology.slot_index import ListedTiles, index_by_slots, index_with_list
from acf.rtl.device.vector.descriptor import DESCRIPTOR_BYTES, VectorDescriptor
from acf.rtl.device.walking import WalkerOption

PRESENT_GRADIENT = "present_gradient"
"""The region with the descriptor of a split-K weight gradient of the present blocks alone."""

OUTPUT_STATIONARY, SPLIT_K, _ = DATAFLOWS


@dataclass(frozen=True)
class MovingLayer:
    """``layer`` names passes and optimizer. ``dataflow`` of the weight gradient: as for `map_dense`.

    The other products are output-stationary.
    """

    layer: StepSizes = field(default_factory=StepSizes)
    dataflow: str = "fastest"


def plan_moving_step(
    state: StepState,
    sizes: FabricSizes,
    axi: AxiSpec,
    moves: int,
    blocks: Sequence[Tile] | None = None,
    moving: "MovingLayer | None" = None,
) -> StepPlan:
    """Lay out a step that ends with a topology update; ``blocks``: (row, column) of every slot, else by column."""
    return _MovingPlanner(state, sizes, axi, moves, blocks, moving or MovingLayer()).plan()


def present_gradient(plan: StepPlan, kept: NDArray[np.bool_]) -> tuple[EncodedProgram, MemoryImage]:
    """The weight gradient of the blocks ``kept`` alone, as a step without moves walks it from the list in memory.

    Its descriptor lies in the region of that name; results go where the gradients of all blocks would.
    """
    place, all_blocks = (
        plan.regions[PRESENT_GRADIENT].base * plan.sizes.shape.link_bytes,
        plan.images["weight_gradient"],
    )
    whole = plan.programs["weight_gradient"]
    dense = map_dense(whole.serial != 0, whole.parallel != 0, None, plan.sizes, SPLIT_K)
    encoded = index_with_list(dense, kept, plan.sizes).listed.encoded
    added = [stream.flits for stream in walked_streams(encoded)]
    streams = [(address, flits) for (address, _), flits in zip(all_blocks.streams, added, strict=True)]
    return encoded, MemoryImage(all_blocks.segments, streams, walking_registers(place))


def moved_step(state: StepState, plan: StepPlan, result: StepResult, moves: int) -> tuple[StepState, list[Tile]]:
    """State and slots of the next step: ``result`` of a step under ``plan``, then a topology update of ``moves``."""
    tile = plan.sizes.shape.tile
    master, gradient = (_blocks(each, tile) for each in (result.master, weight_gradient_of(state, plan, result.dz)))
    norms = block_scores(np.stack([master[block] for block in plan.blocks]))
    gradients = block_scores(gradient.reshape(-1, tile, tile)).reshape(state.kept.shape)
    after = move_blocks(plan.blocks, state.kept.shape, norms, gradients, moves)
    stays = np.zeros_like(state.kept)
    kept = np.zeros_like(state.kept)
    for before, block in zip(plan.blocks, after, strict=True):
        kept[block], stays[block] = True, before == block
    values = np.kron(stays, np.ones((tile, tile), dtype=bool))
    master, moments = (np.where(values, each, np.float32(0)) for each in (result.master, result.moments))
    return replace(state, kept=kept, master=master, moments=moments, channels=result.channels), after


@dataclass(frozen=True, eq=False)
class MovingRun:
    """A step with its topology update: the run, the blocks by slot after it, and what differs from the reference.

    ``differences``: values of the step, and parts of the new topology in memory, that are not the reference's.
    """

    run: StepRun
    plan: StepPlan
    blocks: list[Tile]
    differences: list[str]

    def record(self) -> dict[str, Any]:
        """The figures as plain values."""
        moved = {slot: block for slot, block in enumerate(self.blocks) if block != self.plan.blocks[slot]}
        return self.run.record(self.plan) | {"moved": moved, "differences": self.differences}


def run_moving_steps(
    device: DeviceSimulation, plan: StepPlan, state: StepState, sizes: StepSizes, steps: int = 2
) -> Iterator[MovingRun]:
    """Run steps one after the other, each over the index that the device has written at the end of the one before.

    The host loads memory once. Between two steps it resets the device, whose counts of work done begin anew, and writes
    the optimizer's constants of the next one.
    """
    moves = next(each.moves for each in plan.descriptors if isinstance(each, TopologyDescriptor))
    for number in range(steps):
        if number:
            sizes = replace(sizes, step=sizes.step + 1)
            device.reset()
            load_update_constants(device, plan, sizes)
        run = resume_step(device, plan, state) if number else run_step(device, plan, state, sizes)
        expected = reference_step(state, sizes, plan)
        following, blocks = moved_step(state, plan, expected, moves)
        dataflow = SPLIT_K if plan.programs["weight_gradient"].program.reduces else OUTPUT_STATIONARY
        after = plan_moving_step(following, plan.sizes, device.axi, moves, blocks, MovingLayer(sizes, dataflow))
        values = {name: getattr(following, name) for name in ("weight", "master", "moments")}
        differences = read_step(device, after, following).differences(replace(expected, **values))
        yield MovingRun(run, plan, blocks, differences + _differences(device, after))
        state, plan = following, after


def _differences(device: DeviceSimulation, plan: StepPlan) -> list[str]:
    """Indices, descriptors and tables in memory that are not those of a plan."""
    link = plan.sizes.shape.link_bytes
    expected = {f"{name} index": image.segments[0] for name, image in plan.images.items()}
    contents = {name: (segment.base, segment.content) for name, segment in expected.items()}
    lists = dict(plan.contents) | {"descriptors": b"".join(each.content() for each in plan.descriptors)}
    contents |= {name: (plan.regions[name].base * link, content) for name, content in lists.items()}
    return [name for name, (base, content) in contents.items() if device.peek(base, len(content)) != content]


def _blocks(values: NDArray[np.float32], tile: int) -> NDArray[np.float32]:
    """``[rows, columns, tile, tile]`` of a matrix."""
    return values.reshape(values.shape[0] // tile, tile, -1, tile).swapaxes(1, 2)


class _MovingPlanner(WalkedPlanner):
    def __init__(
        self,
        state: StepState,
        sizes: FabricSizes,
        axi: AxiSpec,
        moves: int,
        blocks: Sequence[Tile] | None,
        moving: MovingLayer,
    ) -> None:
        super().__init__(state, sizes, axi, moving.dataflow, moving.layer)
        self.moves = moves
        self.listed: ListedTiles | None = None
        self.blocks = list(blocks) if blocks is not None else self._by_column()
        if {*self.blocks} != {(int(row), int(column)) for row, column in np.argwhere(self.kept)}:
            raise RtlError("the blocks of a step are not those that its state keeps; give both of one topology")
        for axis, name in ((1, "row"), (0, "column")):
            if not self.kept.any(axis=axis).all():
                raise RtlError(
                    f"a {name} of blocks is empty, and places of results would change once it is filled; keep a block "
                    f"in every {name}"
                )

    def _encode(self) -> None:
        x, present, dz = self._operands()
        slots = {block: slot for slot, block in enumerate(self.blocks)}
        turned = {(column, row): slot for (row, column), slot in slots.items()}
        columns = self.columns * self.tile
        gradient = map_dense(x.T.copy(), dz, None, self.sizes, self.dataflow)
        if isinstance(gradient.mapping, SplitKMapping):
            self.listed = index_with_list(gradient, self.kept, self.sizes)
        self.indexed = {
            "forward": index_by_slots(x, slots, None, columns, self.sizes),
            "input_gradient": index_by_slots(dz, turned, None, self.inputs * self.tile, self.sizes),
            "weight_gradient": self._masked_gradient(x, present) if self.listed is None else self.listed.whole,
        }
        self.programs |= {name: each.encoded for name, each in self.indexed.items()}

    def _masked_gradient(self, x: NDArray[np.bool_], present: NDArray[np.bool_]) -> IndexedProgram:
        """The mask of the topology is in the index, and the descriptor leaves it out in a step that moves blocks."""
        every = {(row, column): column * self.rows + row for row in range(self.rows) for column in range(self.columns)}
        columns = self.columns * self.tile
        gradient = index_by_slots(x.T.copy(), every, np.ones_like(present), columns, self.sizes)
        masked = index_by_slots(x.T.copy(), every, present, columns, self.sizes).index
        return replace(gradient, index=replace(masked, descriptor=replace(masked.descriptor, masked=False)))

    def _place_products(self, x: PlacedMatrix, dz: PlacedMatrix) -> list[Tile]:
        self._place_walked(x, dz, self._weight(self.blocks))
        if self.listed is not None:
            self._region(PRESENT_GRADIENT, PAGE_BYTES // self.link, 1)
        return self.blocks

    def _place_regions(self) -> None:
        super()._place_regions()
        count, words = self.inputs * self.columns, self.sizes.flit_bits // 32
        self._region("norms", SCORE_FLITS, len(self.blocks))
        self._region("gradient_norms", SCORE_FLITS, count)
        for name in ("slot_table", "gradient_table"):
            self._region(name, 1, -(-count // words))

    def _walker(self) -> WalkerOption:
        described = [each.index.descriptor for each in self.indexed.values()]
        described += [] if self.listed is None else [self.listed.listed.index.descriptor]
        return WalkerOption.holding(described, moves=self.moves)

    def _updates(self, gradients: dict[Tile, int]) -> list[ListEntry]:
        """An optimizer's descriptor for every slot, scores, and the update of the topology."""
        updates = [
            replace(each, after_products=len(self.products))
            for slot, block in enumerate(self.blocks)
            for each in self.passes.update_block(slot, gradients[block], self.listed is not None)
        ]
        scores = [self._score(self.regions["master"][slot], "norms", slot, slot == 0) for slot in range(len(updates))]
        for row in range(self.inputs):
            for column in range(self.columns):
                number = row * self.columns + column
                scores.append(self._score(gradients[row, column], "gradient_norms", number))
        return [*updates, *scores, self._topology(len(updates))]

    def _score(self, flit: int, to: str, number: int, is_first: bool = False) -> VectorDescriptor:
        return VectorDescriptor(
            ("batch_norm", "forward", 0),
            vectors=self.tile,
            x=flit,
            x_is_wide=to == "norms" or self.listed is not None,
            stores_sums=True,
            output_2=self.regions[to][number],
            barrier=is_first,
        )

    def _topology(self, updates: int) -> TopologyDescriptor:
        """All of it but where the optimizer's descriptors lie, which is known behind them (`_finished`)."""
        index = {name: self._index_flit(name) for name in self.products}
        mask, group_columns = self.indexed["weight_gradient"].index.descriptor.mask_at, 0
        if self.listed is not None:
            at = self.listed.listed.index.descriptor
            mask, group_columns = at.owners_at, at.group_columns
        names = ("weight", "master", "moments", "norms", "gradient_norms")
        places: dict[str, Any] = {name: self.regions[name].base for name in names}
        return TopologyDescriptor(
            rows=self.inputs,
            columns=self.columns,
            blocks=updates,
            moves=self.moves,
            size=self.tile,
            table=self.regions["slot_table"].base,
            gradients=self.regions["gradient_table"].base,
            updates=0,
            forward_index=index["forward"],
            input_index=index["input_gradient"],
            mask=index["weight_gradient"] + mask * WORD_BYTES // self.link,
            group_columns=group_columns,
            two_moments=self.passes.optimizer.moments == 2,
            gradient_is_y=self.passes.gradient_stream == "y",
            after_products=len(self.products),
            **places,
        )

    def _index_flit(self, name: str) -> int:
        """The first flit of a product's index: a page behind its descriptor."""
        return (self.images[name].segments[0].base + PAGE_BYTES) // self.link

    def _finished(self, entries: list[ListEntry], first_update: int) -> list[ListEntry]:
        place = self.regions["descriptors"].base + first_update * (DESCRIPTOR_BYTES // self.link)
        return [replace(each, updates=place) if isinstance(each, TopologyDescriptor) else each for each in entries]

    def _contents(self) -> dict[str, bytes]:
        """Slots of all blocks, and where their gradients lie."""
        gradients = placed_results(self.programs["weight_gradient"], self.images["weight_gradient"])
        slots = {block: slot for slot, block in enumerate(self.blocks)}
        every = [(row, column) for row in range(self.inputs) for column in range(self.columns)]
        tables = {
            "slot_table": [slots.get(block, NO_SLOT) for block in every],
            "gradient_table": [gradients[block] for block in every],
        }
        contents = {name: _words(table, self.link) for name, table in tables.items()}
        return contents if self.listed is None else contents | {PRESENT_GRADIENT: self._described(self.listed)}

    def _described(self, tiles: ListedTiles) -> bytes:
        """The descriptor of the weight gradient of present blocks: as that of all blocks, with the other list."""
        content = self.images["weight_gradient"].segments[0].content[:PRODUCT_BYTES]
        whole, listed = ProductDescriptor.from_words(np.frombuffer(content, dtype="<u4").tolist()), tiles.listed.index
        names = ("owners_at", "orders_at", "column_rounds", "index_words")
        fields: dict[str, Any] = {name: getattr(listed.descriptor, name) for name in names}
        return _words(replace(whole, **fields).words(), self.link)


def _words(values: Sequence[int], flit_bytes: int) -> bytes:
    """Words of 32 bits in whole flits."""
    content = np.array(values, dtype="<u4").tobytes()
    return content + bytes(-len(content) % flit_bytes)
