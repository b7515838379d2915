"""C text of many records as a library has them, for programs that only start: see start.c."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kiln.packaging.c_blocks import (
    ARGUMENT,
    CONSTANT,
    EXTENT,
    GROUP,
    IMAGE,
    PARAMETER,
    VARIANT,
    Layout,
    Outside,
    Row,
    Rows,
    Value,
    block,
)

_PARAMETERS: list[Row] = [
    {"name_at": name, "type_at": type, "role": role, "offset": offset, "size": size, "promise": promise}
    for name, type, role, offset, size, promise in (
        ("output_ptr", "void *", 1, 0, 8, 16),
        ("input_ptr", "void *", 1, 8, 8, 16),
        ("input_row_stride", "int32_t", 1, 16, 4, 0),
        ("output_row_stride", "int32_t", 1, 20, 4, 0),
        ("n_cols", "int32_t", 1, 24, 4, 0),
        ("global_scratch", "void *", 2, 32, 8, 0),
        ("profile_scratch", "void *", 3, 40, 8, 0),
    )
]

_ARGUMENTS: list[Row] = [
    {
        "name_at": name,
        "type_at": type,
        "offset": offset,
        "size": size,
        "promise": 0,
        "is_pointer": size == 8,
        "is_input": name == "n_rows",
    }
    for name, type, offset, size in (
        ("output_ptr", "*fp16", 0, 8),
        ("input_ptr", "*fp16", 8, 8),
        ("input_row_stride", "i32", 16, 4),
        ("output_row_stride", "i32", 20, 4),
        ("n_cols", "i32", 24, 4),
        ("n_rows", "i32", 28, 4),
    )
]


def records_of(count: int) -> str:
    """`count` variants of one image each in one group, laid out as those of softmax_fp16_1024, and what lists them."""
    numbers = range(count)
    lines = [f"enum {{ COUNT = {count} }};"]
    for number in numbers:
        lines.append(f"extern KERNELS_INTERNAL const struct kernels_image image_{number};")
        lines.append(f"extern KERNELS_INTERNAL const struct kernels_variant variant_{number};")
        lines.append(
            f"static KERNELS_USED const struct kernels_image *const images_{number}[] = {{ &image_{number} }};"
        )
        lines.append(f"static KERNELS_USED struct kernels_cache cache_{number};")
    for kind in ("image", "variant"):
        rows = ", ".join(f"&{kind}_{number}" for number in numbers)
        lines.append(f"static KERNELS_USED const struct kernels_{kind} *const {kind}s[] = {{ {rows} }};")
    lines.append("static KERNELS_USED struct kernels_tuned tuned;")
    lines.append("extern KERNELS_INTERNAL const struct kernels_group group;")
    lines.append('__asm__(".pushsection .rodata, \\"a\\", %progbits\\n"')
    for number in numbers:
        lines += _assembly(f"image_{number}", IMAGE, _image(number))
        lines += _assembly(f"variant_{number}", VARIANT, _variant(number))
    lines += _assembly("group", GROUP, _group(count))
    lines.append('".popsection\\n");')
    return "\n".join(lines) + "\n"


def _assembly(symbol: str, layout: Layout, values: Mapping[str, Value]) -> Iterator[str]:
    # All records of the library are in one file here, where each has one of its own.
    label = f".L{symbol}"
    for line in block(f"{symbol}_shown", symbol, layout, _complete(layout, values)):
        escaped = line.replace(".Lrecord", label).replace("\\", "\\\\").replace('"', '\\"')
        yield f'"{escaped}\\n"'


def _complete(layout: Layout, values: Mapping[str, Value]) -> dict[str, Value]:
    """Zero for what is not said."""
    zero: dict[str, Value] = {member.name: [0] * member.count for member in layout.members}
    return {**zero, **values}


def _image(number: int) -> dict[str, Value]:
    constants: list[Row] = [{"value": 1024, "name_at": "BLOCK_SIZE", "text_at": "1024"}]
    return {
        "threads": 128,
        "parameter_bytes": 48,
        "cluster": [1, 1, 1],
        "kind": 1,
        "anchor_at": Outside("kernels_anchor"),
        "parameter_count": len(_PARAMETERS),
        "parameters_at": Rows(PARAMETER, _PARAMETERS),
        "data_at": Outside("data"),
        "size": 8192,
        "constant_count": 1,
        "constants_at": Rows(CONSTANT, constants),
        "id_at": f"softmax_{number}@sm_90a",
        "kernel_at": "softmax",
        "variant_at": f"softmax_{number}",
        "group_at": "softmax",
        "dtype_at": "fp16",
        "block_at": str(number),
        "target_at": "sm_90a",
        "entry_at": "softmax_kernel",
        "grid_at": ["n_rows", "1", "1"],
        "select_at": "n_cols <= BLOCK_SIZE",
    }


def _variant(number: int) -> dict[str, Value]:
    return {
        "anchor_at": Outside("kernels_anchor"),
        "cache_at": Outside(f"cache_{number}"),
        "images_at": Outside(f"images_{number}"),
        **{f"{name}_at": Outside(name) for name in ("grid", "selects", "broken", "pack")},
        "args_bytes": 32,
        "buffer_bytes": 48,
        "image_count": 1,
        "argument_count": len(_ARGUMENTS),
        "arguments_at": Rows(ARGUMENT, _ARGUMENTS),
        "name_at": f"softmax_{number}",
        "base_at": f"softmax_{number}",
        "kernel_at": "softmax",
        "group_at": "softmax",
        "dtype_at": "fp16",
        "block_at": str(number),
        "select_at": "n_cols <= BLOCK_SIZE",
    }


def _group(count: int) -> dict[str, Value]:
    return {
        "anchor_at": Outside("kernels_anchor"),
        "variants_at": Outside("variants"),
        "tuned_at": Outside("tuned"),
        "variant_count": count,
        "extents_at": Rows(EXTENT, []),
        "name_at": "softmax",
        "is_uniform": True,
    }
