"""The device that all tests of vector work share, as it is after a reset."""

import pytest

from acf.rtl.device.host.simulation import DeviceSimulation


@pytest.fixture
def device(vector_device: DeviceSimulation) -> DeviceSimulation:
    vector_device.simulation.restart()
    return vector_device
