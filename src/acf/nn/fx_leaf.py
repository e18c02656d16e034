"""Modules that `torch.fx.symbolic_trace` records as one call."""

from typing import Any

from torch import fx, nn


class FxLeaf(nn.Module):
    """A module whose forward pass a symbolic trace does not enter, as if it were one of torch's own."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run hooks and ``forward``; `torch.fx.symbolic_trace` records one call, as it does of torch's own layers."""
        for argument in (*args, *named.values()):
            if isinstance(argument, fx.Proxy):
                tracer: Any = argument.tracer
                return tracer.create_proxy("call_module", tracer.path_of_module(self), args, named)
        return super().__call__(*args, **named)
