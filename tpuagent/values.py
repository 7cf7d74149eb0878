"""What is a value? A frozen dataclass, made without the cost of the standard library's.

To import `dataclasses` and to let it make the thirty classes of a `tpuagent bind` takes longer than to start Python and
to bind eight functions together, on a machine that an operator is waiting for. This is the part of it that values
need, with the same meaning; for a type checker it is the original.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import asdict as asdict
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace
else:

    def dataclass(*, frozen, order=False):
        """As dataclasses.dataclass(frozen=True), for classes without bases, `field` and `__post_init__`."""
        if not frozen:
            raise TypeError("a value is frozen")

        def make(cls):
            names = tuple(cls.__annotations__)
            defaults = {name: cls.__dict__[name] for name in names if name in cls.__dict__}
            cls.__match_args__ = names
            cls.__init__ = _make_init(names, defaults)
            cls.__repr__, cls.__eq__, cls.__hash__ = _repr, _eq, _hash
            cls.__setattr__ = cls.__delattr__ = _refuse
            if order:
                cls.__lt__ = _lt
            return cls

        return make

    def replace(value, /, **changes):
        """As dataclasses.replace."""
        return type(value)(**{**value.__dict__, **changes})

    def asdict(value):
        """As dataclasses.asdict, for values that hold values, text and numbers."""
        return {
            name: asdict(inner) if hasattr(inner, "__match_args__") else inner for name, inner in value.__dict__.items()
        }

    def _make_init(names, defaults):
        """Not compiled for each class, as the standard library's: that took longer than the rest of the class."""

        def __init__(self, *given, **named):  # noqa: N807  (it becomes the class's own)
            held = self.__dict__
            held.update(zip(names, given, strict=False))
            for name in names[len(given) :]:
                if name in named:
                    held[name] = named.pop(name)
                elif name in defaults:
                    held[name] = defaults[name]
                else:
                    raise TypeError(f"{type(self).__name__} needs {name}")
            if named or len(given) > len(names):
                raise TypeError(f"{type(self).__name__} takes {', '.join(names)}")

        return __init__

    def _key(value):
        return tuple(value.__dict__.values())

    def _repr(self):
        held = ", ".join(f"{name}={inner!r}" for name, inner in self.__dict__.items())
        return f"{type(self).__qualname__}({held})"

    def _eq(self, other):
        return self.__dict__ == other.__dict__ if type(self) is type(other) else NotImplemented

    def _lt(self, other):
        return _key(self) < _key(other) if type(self) is type(other) else NotImplemented

    def _hash(self):
        return hash((type(self), *self.__dict__.values()))

    def _refuse(self, *_):
        raise AttributeError(f"a {type(self).__name__} does not change; make another one with replace()")
