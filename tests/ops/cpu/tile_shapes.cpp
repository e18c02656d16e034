// A configuration that nothing follows: what it is made of must be in memory all the same.
#include "tiles.h"

extern "C" __attribute__((visibility("default"))) void configure_tiles(int pairs) {
    const TileRegisters registers(pairs);
}
