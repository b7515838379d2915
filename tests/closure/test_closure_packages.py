"""What a kernel may need of Python and of Triton: static tables, compared with the Python that runs the tests."""

from __future__ import annotations

import importlib
import types

import pytest

from kiln.closure import packages

TABLE = [(module, name) for module, names in packages.COMPUTING.items() for name in sorted(names)]


def test_names_are_no_modules() -> None:
    """A module behind an allowed name would lead to the machine; those that this Python lacks lead nowhere."""
    found = 0
    for module, name in TABLE:
        value = getattr(importlib.import_module(module), name, None)
        assert not isinstance(value, types.ModuleType), f"{module}.{name}"
        assert packages.refusal(f"{module}.{name}") is None
        found += value is not None
    assert found > len(TABLE) * 0.9


def test_no_module_is_let_through() -> None:
    """Whatever module a library module has imported for itself, and whatever its private names hold, is refused."""
    tried = 0
    for module in packages.COMPUTING:
        for name, value in vars(importlib.import_module(module)).items():
            if isinstance(value, types.ModuleType) and f"{module}.{name}" not in packages.COMPUTING:
                assert packages.refusal(f"{module}.{name}.x") is not None, f"{module}.{name}"
                tried += 1
    assert tried > 20


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("math.ceil", None),
        ("math", "a module is used as a value"),
        ("collections.abc", "a module is used as a value"),
        ("collections.abc.Callable", None),
        ("functools.reduce.__globals__", "not among the names"),
        ("copy.copy", None),
        ("statistics.mean", "can read the machine"),
        ("logging.INFO", "can read the machine"),
        ("warnings.warn", "can read the machine"),
        ("contextlib.nullcontext", "hangs on what happens while the file runs"),
        ("contextlib.suppress", "hangs on what happens while the file runs"),
        ("os.environ", "can read the machine"),
        ("random.random", "can read the machine"),
        ("torch.float16", "neither Triton nor a file of this project"),
        ("triton.language.float16", None),
        ("triton.language", None),
        ("triton", "a module is used as a value"),
        ("triton.cdiv", None),
        ("triton.runtime.driver", "asks the machine"),
        ("triton.runtime.jit.constexpr_function", None),
        ("triton.language.core.knobs.x", "asks the machine"),
        ("triton.language.extra.cuda.libdevice.rint", None),
    ],
)
def test_refusal(name: str, reason: str | None) -> None:
    found = packages.refusal(name)
    assert (found is None) if reason is None else (found is not None and reason in found.reason)


def test_triton_holds_no_other_modules_than_its_own() -> None:
    """Modules that parts of triton.language have imported for themselves are refused by name."""
    import triton.language as tl
    import triton.language.semantic  # noqa: F401  # so that it is looked through

    seen, pending = set(), [("triton.language", tl)]
    while pending:
        path, module = pending.pop()
        for name, value in vars(module).items():
            if not isinstance(value, types.ModuleType) or name.startswith("_"):
                continue
            if value.__name__.startswith("triton.language"):
                if value.__name__ not in seen:
                    seen.add(value.__name__)
                    pending.append((f"{path}.{name}", value))
            elif value.__name__ not in packages.HARMLESS and not value.__name__.startswith("triton._C"):
                assert packages.refusal(f"{path}.{name}.x") is not None, f"{path}.{name}"
    assert len(seen) > 5
