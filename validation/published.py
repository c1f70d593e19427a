"""How models whose throughput was published were trained.

Configurations are those of graphcore/examples@09b7c672 and, where it has them, of @3cc8f81f, unless
something else is said. All of them recompute activations.
"""

from __future__ import annotations

import dataclasses as dc
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from ipujax.pipelining_ops import PipelineSchedule
from validation.models import bert, conformer, efficientnet, resnet, unet, vit
from validation.models.layers import cross_entropy
from validation.models.variables import Variables, struct
from validation.row import Row

Stage = Callable[..., Any]
I32 = jnp.int32


@dc.dataclass(frozen=True, kw_only=True)
class Setup:
    """How a model is trained.

    Attributes:
      model: what tells its program from others of equal elements.
      stages: of its pipeline.
      element: one micro-batch.
      micro_batch: examples in it.
      global_batch: examples of one update.
      optimizer: an optax transformation.
      ipus: of one replica.
      devices: the IPU of each stage; stage i on IPU i by default.
      schedule: of the pipeline.
      dtype: of the variables.
      proportions: available memory proportion of each stage.
      offload: whether the optimizer's state is kept in streaming memory.
      partials: what sums are kept in.
      popart: whether PopART compiled it, as it does for PyTorch.
      per_example: items that the publisher counts for an example (packed sequences).
      assumptions: what the row does not say.
    """

    model: str
    stages: Sequence[Stage]
    element: tuple[jax.ShapeDtypeStruct, ...]
    micro_batch: int
    global_batch: int
    optimizer: Any
    ipus: int
    devices: Sequence[int] | None = None
    schedule: PipelineSchedule = PipelineSchedule.Grouped
    dtype: Any = jnp.float16
    proportions: Sequence[float] | None = None
    offload: bool = False
    partials: Any = None
    popart: bool = False
    per_example: float = 1.0
    assumptions: tuple[str, ...] = ()


def setup_of(row: Row) -> Setup | None:
    """How the model of a row was trained; None if it is none of `MODELS`."""
    for pattern, build in MODELS:
        if "model" in row.workload and re.search(pattern, row.text):
            return build(row)
    return None


def _resnet50(row: Row) -> Setup:
    """TF1: resnet50_mlperf_*: stages one after the other on one IPU; _bs20 without LARS in v1.0."""
    torch = _is_of_torch(row)
    given = row.workload.get("global_batch")
    size = 18 if torch else 20
    for candidate in (22, 20, 16):
        if given and not torch and not given % (candidate * row.ipus):
            size = candidate
            break
    with_lars = {16: 10, 64: 4}
    without = {16: 6}
    accumulation = 57 if torch else (without if "v1.0" in row.text else with_lars).get(row.ipus, 2)
    assumed = () if given else (f"{accumulation} micro-batches of {size} per update",)
    return Setup(
        model="resnet50",
        stages=_grouped(resnet.RESNET50.parts(), (2, 4, 5, 7, 9, 12)),
        element=(struct(jnp.uint8, size, 224, 224, 3), struct(I32, size)),
        micro_batch=size,
        global_batch=int(given or accumulation * size * row.ipus),
        optimizer=optax.sgd(0.1, 0.9),
        ipus=1,
        devices=[0] * 7,
        schedule=PipelineSchedule.Sequential,
        proportions=(0.15,) * 7,
        popart=torch,
        assumptions=assumed,
    )


def _resnext101(row: Row) -> Setup:
    """TF1: resnext101_16ipus, 2 IPUs, cut after stage3/unit4."""
    return Setup(
        model="resnext101",
        stages=_grouped(resnet.RESNEXT101.parts(), (12,)),
        element=(struct(jnp.uint8, 6, 224, 224, 3), struct(I32, 6)),
        micro_batch=6,
        global_batch=int(row.workload.get("global_batch") or 6 * 16 * 8),
        optimizer=optax.sgd(0.1, 0.9),
        ipus=2,
    )


def _efficientnet(row: Row) -> Setup:
    """TF1: efficientnet_b4_g16_16ipus, 2 IPUs; PyTorch: efficientnet-b4-g16-gn-pod16, 4 IPUs."""
    torch = _is_of_torch(row)
    size, ipus, accumulation = (6, 4, 32) if torch else (3, 2, 256)
    cuts = ("block2b", "block4a", "block5f") if torch else ("block4a",)
    network = dc.replace(efficientnet.B4_G16, group_norms=True)
    names = [name for name, _ in network.parts()]
    return Setup(
        model=f"{network}",
        stages=_grouped(
            [part for _, part in network.parts()],
            tuple(names.index(cut) for cut in cuts),
        ),
        element=(struct(jnp.uint8, size, 380, 380, 3), struct(I32, size)),
        micro_batch=size,
        global_batch=accumulation * size * (16 // ipus),
        optimizer=optax.rmsprop(0.1, momentum=0.9),
        ipus=ipus,
        proportions=(0.15,) * ipus if torch else (0.4,) * ipus,
        popart=torch,
        assumptions=("group norms, 380x380 images",),
    )


def _bert(row: Row) -> Setup:
    """PopART, TF1 and PyTorch: [3, 7, 7, 7] layers, the loss on IPU 0; SQuAD on 8 IPUs."""
    large, squad = "large" in row.text, "squad" in row.text
    length = _length(row)
    masked = _MASKED.get(length, max(1, round(length * 0.15)))
    sizes = dc.replace(
        bert.LARGE if large else bert.BASE,
        length=length,
        masked=masked,
        dropout=0.1,
        attention_dropout=0.1 if squad else 0.0,
        packed="packed" in row.text,
    )
    batch = _bert_batch(length, large)
    split: tuple[int, ...] = (3, 7, 7, 7) if large else (0, 4, 4, 4)
    assumed = f"{batch} sequences of {length} in a micro-batch, {split} layers per IPU"
    if squad:
        split, batch = (2, 3, 3, 3, 3, 3, 3, 4) if large else split, 4
        labels: tuple[Any, ...] = (struct(I32, batch), struct(I32, batch))
        update = batch * 32 * (16 // len(split))
    else:
        labels = (struct(I32, batch, masked), struct(I32, batch))
        update = 65_536 if length == 128 else 16_384
    per_example = _PACKING.get(length, 1.0) if sizes.packed else 1.0
    loss = sizes.squad_loss if squad else sizes.pretraining_loss
    devices = [*range(len(split)), len(split) - 1 if squad else 0]
    proportions = _bert_proportions(row, large, length) or (0.15, *(0.25,) * (len(split) - 1))
    return Setup(
        model=f"{sizes} {split} {squad}",
        stages=sizes.stages(split, loss),
        element=(struct(I32, batch, length), *labels),
        micro_batch=batch,
        # Packs, as on the published page: 56,064 of them are 65,536 sequences.
        global_batch=int(row.workload.get("global_batch") or update / per_example),
        optimizer=optax.adamw(1e-3) if squad else optax.lamb(1e-3),
        ipus=len(split),
        devices=devices,
        proportions=tuple(proportions[device] for device in devices),
        offload=not squad,
        popart=not str(row.workload.get("framework", "")).startswith(("TF", "TensorFlow")),
        per_example=per_example,
        assumptions=(assumed,),
    )


# nlp/bert/pytorch/configs_pretraining.yml: packing_factor, mask_tokens; that of 384 tokens is of
# nlp/bert/tensorflow2/configs.
_PACKING = {128: 1.17, 384: 1.7, 512: 2.0}
_MASKED = {128: 20, 384: 56, 512: 76}


# Of the four IPUs, for pretraining of so many tokens, on Pod16 and on Pod64
# (nlp/bert/pytorch/configs_pretraining.yml, nlp/bert/tensorflow2/configs).
_BERT_PROPORTIONS = {
    ("pytorch", True, 128): ((0.15, 0.25, 0.25, 0.25), (0.14, 0.19, 0.19, 0.19)),
    ("pytorch", True, 512): ((0.1, 0.15, 0.15, 0.15), (0.13, 0.19, 0.19, 0.19)),
    ("pytorch", False, 128): ((0.25,) * 4, (0.25,) * 4),
    ("pytorch", False, 512): ((0.25,) * 4, (0.25,) * 4),
    ("tensorflow2", True, 128): ((0.1, 0.19, 0.2, 0.25), (0.1, 0.19, 0.2, 0.2)),
    ("tensorflow2", True, 384): ((0.15, 0.28, 0.4, 0.4), (0.15, 0.2, 0.2, 0.25)),
    ("tensorflow2", True, 512): ((0.05, 0.1, 0.1, 0.1), (0.05, 0.1, 0.1, 0.1)),
    ("tensorflow2", False, 128): ((0.28, 0.26, 0.28, 0.28), (0.28, 0.26, 0.28, 0.28)),
    ("tensorflow2", False, 384): ((0.28, 0.26, 0.28, 0.28), (0.28, 0.26, 0.28, 0.28)),
    ("tensorflow2", False, 512): ((0.2,) * 4, (0.2,) * 4),
}


def _bert_proportions(row: Row, large: bool, length: int) -> tuple[float, ...] | None:
    """The available memory proportion of each IPU; None if it was not found."""
    framework = str(row.workload.get("framework", "")).lower().partition(" ")[0]
    found = None if "squad" in row.text else _BERT_PROPORTIONS.get((framework, large, length))
    return found and found[row.ipus > 16]


def _bert_batch(length: int, large: bool) -> int:
    """Micro-batches of the published configurations, powers of two; others hold as many tokens."""
    tokens = 1024 if large else 4096
    return 1 << (max(1, tokens // length).bit_length() - 1)


def _is_of_torch(row: Row) -> bool:
    return "pytorch" in str(row.workload.get("framework", "")).lower()


def _length(row: Row) -> int:
    found = re.search(r"(?:sl|sequence length )\s*(\d+)", row.text)
    if found:
        return int(found[1])
    if re.search(r"ph(?:ase)?\s*2", row.text):
        return 384
    return 128


def _dino(row: Row) -> Setup:
    """vit_base_pod16: 8 IPUs, [1, 2, 2, 2, 2, 2, 1, 0] blocks; on a Pod64 --ga 200 --batch_size 2.

    The teacher's moving averages, which each micro-batch updates, are left out.
    """
    size = 2
    net = vit.DINO
    blocks = (1, 2, 2, 2, 2, 2, 1, 0)
    starts = [sum(blocks[:number]) for number in range(len(blocks))]

    def stage(number: int, v: Variables, *images: Any) -> Any:
        own = [v / "student", v / "student", v / "teacher"]
        values = list(images)
        if number == 0:
            values = [net.embed(part, x) for part, x in zip(own, images, strict=True)]
        for block in range(starts[number], starts[number] + blocks[number]):
            values = [net.block(block, part, x) for part, x in zip(own, values, strict=True)]
        if number < len(blocks) - 1:
            return tuple(values)
        outputs = [net.project(part, x) for part, x in zip(own, values, strict=True)]
        student = jax.nn.log_softmax(jnp.concatenate(outputs[:2]).astype(jnp.float32))
        teacher = jax.nn.softmax(jax.lax.stop_gradient(outputs[2]).astype(jnp.float32))
        return -(jnp.tile(teacher, (5, 1)) * student).mean()

    views = struct(jnp.float16, 2 * size, 224, 224, 4)
    return Setup(
        model="dino",
        stages=[functools.partial(stage, number) for number in range(len(blocks))],
        element=(views, struct(jnp.float16, 8 * size, 96, 96, 4), views),
        micro_batch=size,
        global_batch=size * (128 if row.ipus <= 16 else 1600),
        optimizer=optax.adamw(1e-3),
        ipus=8,
        proportions=(0.15,) * 8,
        popart=True,
        assumptions=("ViT-B/16, 2 views of 224x224 and 8 of 96x96 for each image",),
    )


def _swin(row: Row) -> Setup:
    """SWIN_BASE_LINEAR in fp32; SWIN_LARGE_224_22K_FINETUNE_1K_FP16_POD16. Both on 8 IPUs."""
    large = "large" in row.text
    net = dc.replace(vit.SWIN_LARGE if large else vit.SWIN_BASE, multiple=8, drops_path=True)
    layers = (2, 3, 4, 4, 4, 4, 2, 1) if large else (2, 2, 3, 3, 5, 5, 2, 2)
    size, accumulation = (6, 683) if large else (4, 128)
    cuts = tuple(1 + sum(layers[: number + 1]) for number in range(len(layers) - 1))
    dtype = jnp.float32 if row.dtype == "float32" else jnp.float16
    return Setup(
        model=f"{net}",
        stages=_grouped(net.parts(), cuts),
        element=(struct(dtype, size, 224, 224, 4), struct(I32, size)),
        micro_batch=size,
        global_batch=size * accumulation * (row.ipus // 8),
        optimizer=optax.adamw(1e-3),
        ipus=8,
        dtype=dtype,
        proportions=(0.12,) * 8,
        popart=True,
        assumptions=(f"micro-batches of {size} images, {accumulation} per update and replica",),
    )


def _unet(row: Row) -> Setup:
    """main.py --nb-ipus-per-replica 4 --micro-batch-size 1 --gradient-accumulation-count 24."""
    parts = unet.parts()
    groups = (parts[0:1], parts[1:6], parts[6:8], parts[8:])

    def stage(number: int, v: Variables, *values: Any) -> Any:
        *state, labels = values
        for part in groups[number]:
            state = part(v, tuple(state))
        return unet.loss(state[0], labels) if number == 3 else (*state, labels)

    side = unet.OUTPUT_SIDE
    return Setup(
        model="unet",
        stages=[functools.partial(stage, number) for number in range(4)],
        element=(struct(jnp.float16, 1, unet.SIDE, unet.SIDE, 1), struct(I32, 1, side, side)),
        micro_batch=1,
        global_batch=24,
        optimizer=optax.adam(1e-3),
        ipus=4,
        assumptions=(
            "cut after level 1, after the bottom and the first level up, and before the last",
        ),
    )


def _conformer(row: Row) -> Setup:
    """configs/train.yaml: encoders from 2, 6 and 11 on go to IPUs 1, 2 and 3; batches of 4."""
    given = re.search(r"global batch (\d+)", row.text)
    starts = (0, 2, 6, 11, 12)

    def stage(number: int, v: Variables, *values: Any) -> Any:
        if number == 0:
            values = conformer.subsample(v, *values)
        for layer in range(starts[number], starts[number + 1]):
            values = conformer.encoder(v / f"encoder{layer}", *values)
        return conformer.loss(v, *values) if number == 3 else values

    speech = struct(jnp.float16, 4, conformer.FRAMES, conformer.MEL)
    return Setup(
        model="conformer",
        stages=[functools.partial(stage, number) for number in range(4)],
        element=(speech, struct(I32, 4, conformer.TOKENS), struct(I32, 4)),
        micro_batch=4,
        global_batch=int(given[1]) if given else 16_128,
        optimizer=optax.adam(1e-3),
        ipus=4,
        proportions=(0.3,) * 4,
        popart=True,
        assumptions=("the CTC loss's recursion is left out",),
    )


def _grouped(parts: Sequence[Stage], cuts: tuple[int, ...]) -> list[Stage]:
    """Stages of consecutive parts; labels go along, and the last takes the cross entropy.

    Images that come as bytes (`eight_bit_io`) are made halves on the IPU.
    """
    bounds = (0, *cuts, len(parts))

    def stage(number: int, v: Variables, x: Any, labels: Any) -> Any:
        x = x.astype(v.dtype)
        for part in parts[bounds[number] : bounds[number + 1]]:
            x = part(v, x)
        return cross_entropy(x, labels) if number == len(cuts) else (x, labels)

    return [functools.partial(stage, number) for number in range(len(bounds) - 1)]


MODELS: tuple[tuple[str, Callable[[Row], Setup]], ...] = (
    ("resnet-?50", _resnet50),
    ("resnext-?101", _resnext101),
    ("efficientnet-?b4", _efficientnet),
    (r"\bbert\b", _bert),
    ("dino", _dino),
    ("swin", _swin),
    ("unet", _unet),
    ("conformer", _conformer),
)
