"""Three lines put a graph into attention; the rest prints the result.

python examples/quickstart.py
"""

import argparse

import torch

import topomask

parser = argparse.ArgumentParser(description="Masked attention on a random graph, forward and backward.")
parser.add_argument("--nodes", type=int, default=1000)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--seed", type=int, default=0, help="of the graph and of q, k and v")
options = parser.parse_args()

torch.manual_seed(options.seed)
n, h = options.nodes, options.heads
edge_index = torch.randint(n, (2, 4 * n))
edge_index = torch.cat([edge_index, edge_index.flip(0)], 1)  # both directions: undirected
q, k, v = (torch.randn(2, h, n, 32, requires_grad=True) for _ in range(3))

graph = topomask.Graph.from_edge_index(edge_index, num_nodes=n)
mask = topomask.GRFMask(graph, num_walks=8, p_halt=0.3, max_hops=4, heads=h, seed=1)
out = topomask.attention(q, k, v, mask=mask)  # [B, H, N, d]

out.square().mean().backward()
print(f"graph          {graph}")
print(f"mask           {mask.num_entries():,} of {n * n:,} entries are not zero")
print(f"f              {list(mask.f.shape)}: one number per head and hop")
print(f"q, k, v, out   {list(out.shape)}")
print(f"gradient norm  f {mask.f.grad.norm():.3e}, q {q.grad.norm():.3e}")
