"""Muon for the weight matrices and AdamW for all else, in one optimizer.

Muon (Jordan et al. 2024): the momentum of a matrix, with its singular values pushed towards one by five Newton–Schulz
iterations, times 0.2 sqrt(max(rows, columns)) (Liu et al. 2025, Moonlight, section 2.2). Matrices of one shape are
iterated together in one batch.
"""

import torch

# The quintic of Jordan's reference implementation: steep at zero, singular values end in about [0.7, 1.2].
_A, _B, _C = 3.4445, -4.7750, 2.0315


def orthogonalise(matrices, iterations=5):
    """[n, rows, cols] → the same shape, each with singular values near one."""
    x = matrices / (matrices.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.transpose(1, 2)
    for _ in range(iterations):
        gram = torch.bmm(x, x.transpose(1, 2))
        x = _A * x + torch.bmm(torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C), x)
    return x.transpose(1, 2) if tall else x


class MuonWithAdamW(torch.optim.Optimizer):
    """Groups with `muon: True` hold matrices and take Muon's step; the others take AdamW's, without weight decay.

    Every update is made in float32 on a float32 master where the parameter is narrower; the master is
    `state[p]["master"]`, and is rounded into the parameter once a step.
    """

    def __init__(self, groups, momentum=0.95, betas=(0.9, 0.98), eps=1e-8):
        super().__init__(groups, {"muon": False, "momentum": momentum, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if group["muon"]:
                self._muon(params, group)
            else:
                self._adamw(params, group)
        return loss

    def _state(self, p, *moments):
        state = self.state[p]
        if not state:
            state["step"] = 0
            if p.dtype != torch.float32:
                state["master"] = p.detach().float().clone()
            for name in moments:
                state[name] = torch.zeros_like(p, dtype=torch.float32)
        state["step"] += 1
        return state

    def _commit(self, params):
        narrow = [p for p in params if "master" in self.state[p]]
        for p in narrow:
            p.copy_(self.state[p]["master"])

    def _targets(self, params):
        return [self.state[p].get("master", p) for p in params]

    def _muon(self, params, group):
        by_shape = {}
        for p in params:
            state = self._state(p, "momentum")
            grad = p.grad.float()
            state["momentum"].lerp_(grad, 1 - group["momentum"])
            update = grad.lerp(state["momentum"], group["momentum"])  # Nesterov.
            by_shape.setdefault(p.shape, ([], []))
            by_shape[p.shape][0].append(p)
            by_shape[p.shape][1].append(update)
        for shape, (same, updates) in by_shape.items():
            scale = -group["lr"] * 0.2 * max(shape) ** 0.5
            directions = orthogonalise(torch.stack(updates))
            torch._foreach_add_(self._targets(same), list(directions.unbind(0)), alpha=scale)
        self._commit(params)

    def _adamw(self, params, group):
        if not params:
            return
        beta1, beta2 = group["betas"]
        states = [self._state(p, "mean", "square") for p in params]
        grads = [p.grad.float() for p in params]
        means = [s["mean"] for s in states]
        squares = [s["square"] for s in states]
        torch._foreach_mul_(means, beta1)
        torch._foreach_add_(means, grads, alpha=1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, grads, grads, 1 - beta2)
        step = states[0]["step"]
        correction = (1 - beta2**step) ** 0.5
        denominators = torch._foreach_sqrt(squares)
        torch._foreach_add_(denominators, group["eps"] * correction)
        scale = -group["lr"] * correction / (1 - beta1**step)
        torch._foreach_addcdiv_(self._targets(params), means, denominators, scale)
        self._commit(params)
