"""Where everything of a step lies in memory, its products, and its vector descriptors in order."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from acf.rtl.design.axi.spec import PAGE_BYTES, AxiSpec
from acf.rtl.design.fabric.encoding import EncodedProgram
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.index.indexed_program import IndexedProgram
from acf.rtl.device.host.image import MemoryImage
from acf.rtl.device.host.placed_index import index_dense, lay_out_walked
from acf.rtl.device.host.placed_product import (
    PlacedMatrix,
    encode_dense,
    lay_out_placed,
    page_of,
    placed_results,
    result_tile_flits,
)
from acf.rtl.device.step.kinds import StepKind, kind_named
from acf.rtl.device.step.layer import StepSizes, StepState
from acf.rtl.device.step.optimizer import optimizer_named
from acf.rtl.device.step.passes import Passes, Region, Run, Tile
from acf.rtl.device.topology.descriptor import TopologyDescriptor
from acf.rtl.device.vector.descriptor import DESCRIPTOR_BYTES, VectorDescriptor
from acf.rtl.device.walking import WalkerOption

ListEntry = VectorDescriptor | TopologyDescriptor
"""An entry of the list that the vector queue runs."""


@dataclass(frozen=True, eq=False)
class StepPlan:
    """The regions of a step by name, its products by name in order, and its vector descriptors.

    ``blocks``: (row, column) of every weight block, in the order in which they lie in memory. ``order``: for every
    column of tiles, its row tiles in the order of summing; or the other way round, where ``kind`` sums rows.
    ``vector_work`` made the descriptors. ``first_descriptors``: those before the first gradient, which waits for them.
    ``walker``: what the device needs to walk the products; None: the host sends commands. ``contents``: what further
    regions hold before the step, by name.
    """

    sizes: FabricSizes
    kind: StepKind
    vector_work: Passes
    regions: dict[str, Region]
    programs: Mapping[str, EncodedProgram]
    images: Mapping[str, MemoryImage]
    blocks: list[Tile]
    order: list[list[int]]
    descriptors: list[ListEntry]
    first_descriptors: int
    end: int
    walker: WalkerOption | None = None
    contents: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def passes(self) -> list[VectorDescriptor]:
        """The descriptors of vector work alone."""
        return [each for each in self.descriptors if isinstance(each, VectorDescriptor)]

    @property
    def list_page(self) -> int:
        """The page where the descriptors lie."""
        return self.regions["descriptors"].base * self.sizes.shape.link_bytes // PAGE_BYTES


def plan_step(
    state: StepState,
    sizes: FabricSizes,
    axi: AxiSpec,
    walks: bool = False,
    dataflow: str = "fastest",
    layer: StepSizes | None = None,
) -> StepPlan:
    """Lay out a step from byte 0 on.

    ``walks``: the device walks the index of every product, and computes the gradient of the input, too; else the host
    sends commands of output-stationary products. ``dataflow`` of walked products: as for `map_dense`; a forward product
    whose rows are summed is output-stationary. ``layer`` names passes and optimizer.
    """
    if walks:
        return WalkedPlanner(state, sizes, axi, dataflow, layer).plan()
    return Planner(state, sizes, axi, layer).plan()


class Planner:
    """Plans a step whose products are commanded by the host."""

    products: tuple[str, ...] = ("forward", "weight_gradient")

    def __init__(self, state: StepState, sizes: FabricSizes, axi: AxiSpec, layer: StepSizes | None = None) -> None:
        layer = layer or StepSizes()
        optimizer = optimizer_named(layer.optimizer)
        self.kind = kind_named(layer.passes)
        self.sizes, self.axi, self.tile, self.link = sizes, axi, sizes.shape.tile, sizes.shape.link_bytes
        self.rows, self.inputs = state.x.shape[0] // self.tile, state.x.shape[1] // self.tile
        self.columns, self.kept = state.target.shape[1] // self.tile, state.kept
        self.regions: dict[str, Region] = {}
        self.passes = self.kind.passes(self.regions, self.tile, self.rows, self.columns, optimizer)
        self.programs: dict[str, EncodedProgram] = {}
        self.images: dict[str, MemoryImage] = {}
        self.indexed: dict[str, IndexedProgram] = {}
        self.blocks: list[Tile] = []
        self.flit = 0

    def plan(self) -> StepPlan:
        """Places, products and descriptors, in the order in which each needs the one before."""
        self._place_regions()
        self._encode()
        x = PlacedMatrix({(row, k): self.regions["x"][row * self.inputs + k] for row, k in self._tiles(self.inputs)})
        dz = PlacedMatrix({tile: self.passes.activation("dz", tile) for tile in self._tiles(self.columns)})
        blocks = self._place_products(x, dz)
        runs = self._runs()
        gradients = placed_results(self.programs["weight_gradient"], self.images["weight_gradient"])
        before = list(self.passes.before_gradient(runs))
        self.blocks = blocks
        first = [*before, *self.passes.update_channels()]
        descriptors = [*first, *self._updates(gradients)]
        self._region("descriptors", DESCRIPTOR_BYTES // self.link, len(descriptors))
        return StepPlan(
            sizes=self.sizes,
            kind=self.kind,
            vector_work=self.passes,
            regions=self.regions,
            programs={name: self.programs[name] for name in self.products},
            images={name: self.images[name] for name in self.products},
            blocks=blocks,
            order=[[place for run in line for place in run.places] for line in runs],
            descriptors=self._finished(descriptors, len(first)),
            first_descriptors=len(before),
            end=self.flit * self.link,
            walker=self._walker(),
            contents=self._contents(),
        )

    def _updates(self, gradients: dict[Tile, int]) -> list[ListEntry]:
        """What is left to do once weight gradients are there."""
        places = [gradients[block] for block in self.blocks]
        tile_flits = result_tile_flits(self.programs["weight_gradient"])
        return list(self.passes.update_weights(places, tile_flits, len(self.products)))

    def _finished(self, entries: list[ListEntry], first_update: int) -> list[ListEntry]:
        """The list once its place is known; ``first_update``: the number of the first entry of `_updates`."""
        return entries

    def _contents(self) -> dict[str, bytes]:
        return {}

    def _runs(self) -> list[list[Run]]:
        """Where the forward product leaves its tiles."""
        results = placed_results(self.programs["forward"], self.images["forward"])
        return self.passes.runs(results, result_tile_flits(self.programs["forward"]))

    # The products.
    def _operands(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """Where x, weight and dz may hold a non-zero."""
        tile = np.ones((self.tile, self.tile), dtype=bool)
        x, dz = (np.kron(np.ones((self.rows, count), dtype=bool), tile) for count in (self.inputs, self.columns))
        return x, np.kron(self.kept, tile), dz

    def _encode(self) -> None:
        x, present, dz = self._operands()
        self.programs["forward"] = encode_dense(x, present, None, self.sizes)
        self.programs["weight_gradient"] = encode_dense(x.T.copy(), dz, present, self.sizes)

    def _place_products(self, x: PlacedMatrix, dz: PlacedMatrix) -> list[Tile]:
        """Lay out both products; weight blocks lie in the order of their gradients, so that runs are long."""
        gradient, forward = self.programs["weight_gradient"], self.programs["forward"]
        second = lay_out_placed(gradient, x.T, dz, self.axi, self.flit * self.link)
        blocks = [tile for tile in placed_results(gradient, second) if self.kept[tile]]
        first = lay_out_placed(forward, x, self._weight(blocks), self.axi, page_of(second.end))
        self.images |= {"forward": first, "weight_gradient": second}
        self.flit = page_of(first.end) // self.link
        return blocks

    def _walker(self) -> WalkerOption | None:
        return None

    def _weight(self, blocks: list[Tile]) -> PlacedMatrix:
        return PlacedMatrix({tile: self.regions["weight"][number] for number, tile in enumerate(blocks)})

    def _tiles(self, columns: int) -> list[Tile]:
        """All tiles of a matrix with a row for every token."""
        return [(row, column) for row in range(self.rows) for column in range(columns)]

    # Places in memory.
    def _region(self, name: str, flits: int, count: int) -> None:
        self.regions[name] = Region(self.flit, flits, count)
        self.flit = page_of(self.regions[name].end * self.link) // self.link

    def _place_regions(self) -> None:
        tile, blocks = self.tile, int(self.kept.sum())
        self._region("x", tile, self.rows * self.inputs)
        self._region("weight", tile, blocks)
        self._region("master", 2 * tile, blocks)
        self._region("moments", 2 * tile * self.passes.optimizer.moments, blocks)
        for name, (flits, count) in self.passes.places().items():
            self._region(name, flits, count)
        self._region("update_constants", 10, 1)


class WalkedPlanner(Planner):
    """Every product has a descriptor; weight blocks lie by output column, in the order in which an index has them."""

    products = ("forward", "input_gradient", "weight_gradient")

    def __init__(
        self, state: StepState, sizes: FabricSizes, axi: AxiSpec, dataflow: str, layer: StepSizes | None = None
    ) -> None:
        super().__init__(state, sizes, axi, layer)
        self.dataflow = dataflow

    def _encode(self) -> None:
        x, present, dz = self._operands()
        flow = self.dataflow
        forward = "output-stationary" if self.kind.sums_rows else flow
        self.indexed = {
            "forward": index_dense(x, present, None, self.sizes, dataflow=forward),
            "input_gradient": index_dense(dz, present.T.copy(), None, self.sizes, direct=True, dataflow=flow),
            "weight_gradient": index_dense(x.T.copy(), dz, present, self.sizes, dataflow=flow),
        }
        self.programs |= {name: each.encoded for name, each in self.indexed.items()}

    def _place_products(self, x: PlacedMatrix, dz: PlacedMatrix) -> list[Tile]:
        blocks = self._by_column()
        self._place_walked(x, dz, self._weight(blocks))
        return blocks

    def _by_column(self) -> list[Tile]:
        return [(int(row), int(column)) for column, row in np.argwhere(self.kept.T)]

    def _place_walked(self, x: PlacedMatrix, dz: PlacedMatrix, weight: PlacedMatrix) -> None:
        self._place("forward", x, weight, 0)
        waits = len(list(self.passes.before_gradient(self._runs())))
        self._place("input_gradient", dz, weight.T, waits)
        self._place("weight_gradient", x.T, dz, waits)

    def _place(self, name: str, serial: PlacedMatrix, parallel: PlacedMatrix, after_vectors: int) -> None:
        base = self.flit * self.link
        self.images[name] = lay_out_walked(self.indexed[name], serial, parallel, self.axi, base, after_vectors)
        self.flit = page_of(self.images[name].end) // self.link

    def _walker(self) -> WalkerOption:
        return WalkerOption.holding([each.index.descriptor for each in self.indexed.values()])
