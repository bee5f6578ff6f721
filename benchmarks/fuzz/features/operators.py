"""Single lines: operators, views and in-place operations on the available tensors."""

from __future__ import annotations

import torch

from benchmarks.fuzz.builder import TRIED, Builder

#: `{a}` and `{b}` are float tensors, mostly of one shape; `{w}` is a matrix with four columns.
EXPRESSIONS = tuple(
    """
    torch.relu({a})|torch.sin({a})|{a}.exp().clamp(max=5.0)|-{a}|{a}.abs()|torch.sigmoid({a})|torch.tanh({a})
    torch.nn.functional.silu({a})|torch.nn.functional.gelu({a})|torch.nn.functional.softmax({a}, dim=-1)
    {a}.cumsum(0)|{a}.flip(0)|{a}.sort(dim=-1)[0]|{a}.round()|{a}.clamp(min=-0.5, max=0.5)|{a}.floor()
    {a} + {b}|{a} - {b}|{a} * {b}|{a} / ({b}.abs() + 1.0)|torch.maximum({a}, {b})|torch.where({a} > 0, {a}, {b})
    torch.where({a} > 0, 1.0, {b})|{a} + 1|{a} * 0.5|2.0 - {a}|{a} ** 2|1.0 / ({a}.abs() + 1)|{a}.square()
    torch.cat([{a}, {b}], 0)|torch.cat(({a}, {b}), dim=-1)|torch.stack([{a}, {b}])|torch.stack([{a}, {b}], -1).sum(-1)
    {a} @ {b}.transpose(-1, -2)|torch.einsum("...i,...i->...", {a}, {b})|torch.matmul({a}, {b}.mT)
    {a}.sum()|{a}.mean(-1)|{a}.amax(0)|{a}.argmax(-1)|{a}.topk(2)[0]|{a}.topk(2).indices|{a}.var(-1)|{a}.norm()
    {a}.std(0, keepdim=True)|{a}.max(-1)[1]|{a}.min()|{a}.prod(-1)|{a}.logsumexp(-1)|{a}.mean()|{a}.sum(0, keepdim=True)
    ({a} > 0).any()|({a} > 0).sum()|({a} > {b}).float()|{a}.argsort(-1)|{a}.isnan()|{a}.sign()
    {a}[{a} > 0].sum()|{a}.masked_fill({a} > 0, 0.0)|{a}.index_select(0, torch.tensor([0]))|{a}.roll(1, 0)
    {a}.gather(-1, {a}.argmax(-1, keepdim=True))|{a}.take_along_dim({a}.argsort(-1), -1)|{a}.repeat(2, 1)
    {a}.double()|{a}.to(torch.float64).float()|{a}.long()|{a}.to(torch.bfloat16)|{a}.int() % 3|{a}.half().float()
    {a}.tril()|{a}.triu(1)|torch.outer({a}.flatten()[:2], {b}.flatten()[:2])|torch.nn.functional.pad({a}, (1, 1))
    torch.nn.functional.layer_norm({a}, ({a}.shape[-1],))|torch.nn.functional.normalize({a}, dim=-1)
    torch.nn.functional.scaled_dot_product_attention({a}[None, None], {b}[None, None], {b}[None, None])
    torch.nn.functional.one_hot({a}.argmax(-1), {a}.shape[-1])|torch.zeros_like({a})|torch.ones({a}.shape[0])
    torch.arange({a}.shape[0]) * 1.0|torch.full_like({a}, 0.25)|{a}.new_zeros(2, 3)|torch.eye({a}.shape[-1])
    {a}.contiguous()|{a}.clone()|{a}.detach()|torch.lerp({a}, {b}, 0.25)|torch.addcmul({a}, {a}, {b}, value=0.5)
    torch.complex({a}, {b}).abs()|torch.polar({a}.abs(), {b}).real|torch.bucketize({a}, torch.tensor([0.0, 1.0]))
    """.replace("\n", "|").split("|")
)
VIEWS = tuple(
    """
    {a}.T|{a}.t()|{a}.transpose(0, 1)|{a}.view(-1)|{a}.reshape(-1)|{a}[1:]|{a}[:, ::2]|{a}[..., 0]|{a}.unsqueeze(0)
    {a}.expand(2, *{a}.shape)|{a}.narrow(0, 0, 1)|{a}.unflatten(-1, (2, 2))|{a}.as_strided((2,), (1,))|{a}.split(2, -1)[1]
    {a}.chunk(2, -1)[0]|{a}.diagonal()|{a}.unbind(0)[0]|{a}.permute(1, 0)|{a}.squeeze()|{a}.view_as({a})|{a}.flatten()
    {a}.movedim(0, -1)|{a}.view(torch.int32)|{a}.unfold(0, 2, 1)|{a}[None]|{a}[:, None]|{a}[-1]|{a}.mT|{a}.reshape(-1, 2)
    {a}.view({a}.size(0), -1)|{a}.select(0, 0)|{a}.swapaxes(0, 1)|{a}[...]|{a}.tensor_split(2)[0]|{a}.ravel()|{a}.alias()
    {a}.expand_as({a})|{a}.real|torch.broadcast_tensors({a}, {b})[0]|torch.atleast_3d({a})|{a}.detach()[0]|{a}.data
    torch.view_as_complex({a}.view(-1, 2, 2))|{a}.hsplit(2)[1]|{a}.as_strided((2, 2), (2, 1), 1)|{a}.view(1, -1, 2)
    """.replace("\n", "|").split("|")
)
IN_PLACE = tuple(
    """
    {a}.add_(1)|{a}.mul_({b})|{a}[0] = {b}[-1]|{a}[:, 1] += 1|{a}.copy_({b})|{a}.zero_()|{a}.t_()|{a}.unsqueeze_(0)
    {a}.masked_fill_({a} > 0, 0.5)|{a}.clamp_(-0.5, 0.5)|{a} += {b}|{a} *= 2.0|torch.add({a}, {b}, out={c})|{a}.relu_()
    {a}.fill_(0.25)|{a}.sub_({b}, alpha=2)|{a}.index_fill_(0, torch.tensor([0]), 3.0)|{a}[..., -1] = 7.0|{a}.neg_()
    {a}.index_add_(0, torch.tensor([0]), {b}[:1])|{a}.T.add_(1)|{a}.view(-1)[0] = 9.0|{a}[{a} > 0] = -1.0|{a}.sigmoid_()
    {a}.data.add_(1)|{a}.data = {b}|{a}.transpose_(0, 1)|{a}.squeeze_()|{a}.detach().mul_(2)|{a}[1:].copy_({b}[1:])
    {a}.scatter_(-1, {a}.argmax(-1, keepdim=True), 0.0)|{a}.set_({b})|{a}.resize_(2, 2)|{a}.swapaxes_(0, 1)|{a}.exp_()
    """.replace("\n", "|").split("|")
)


def random_line(g: Builder, *, in_place: float = 0.08) -> bool:
    """Add one line; False if none of a few attempts could be run."""
    for _ in range(6):
        floats = g.tensors(lambda value: value.dtype == torch.float32 and value.dim() > 0 and value.numel() < 4000)
        if not floats:
            g.add_tensor()
            continue
        first = g.chance.choice(floats[-3:] if g.chance.random() < 0.7 else floats)
        shape = g.space()[first].shape
        alike = [name for name in floats if g.space()[name].shape == shape]
        words = {"a": first, "b": g.chance.choice(alike), "c": g.chance.choice(alike)}
        kind = g.chance.random()
        if kind < in_place:
            if g.statement(g.chance.choice(IN_PLACE).strip().format(**words)):
                g.features.append("in place")
                return True
        elif kind < in_place + 0.25:
            if g.set(g.chance.choice(VIEWS).strip().format(**words)):
                return True
        elif g.set(g.chance.choice(EXPRESSIONS).strip().format(**words)):
            return True
    return False


def to_main(g: Builder, name: str) -> str:
    """Return a float tensor of shape (batch, 4) or () that depends on a tensor."""
    value = g.space()[name]
    if tuple(value.shape) == (TRIED, 4) and value.dtype == torch.float32:
        return name
    return f"{name}.float().sum()"
