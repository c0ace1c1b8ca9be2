"""Writes the binary seeds of the fuzz targets (fuzz/corpus): NumPy and SciPy archives, safetensors, binary PLY meshes,
images. (The JPEG files there were written by libjpeg-turbo, the videos by FFmpeg.)

Run once after changing a format: .venv/bin/python scripts/make_fuzz_seeds.py
"""

import pathlib
import struct
import zlib

import numpy as np
import safetensors.numpy
import scipy.sparse

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "fuzz" / "corpus"


def write_npz() -> None:
    folder = CORPUS / "npz"
    matrix = scipy.sparse.coo_array(([1.0, 1.0, 2.5], ([0, 1, 2], [1, 0, 2])), shape=(3, 3))
    for kind in ("csr", "csc", "coo"):
        scipy.sparse.save_npz(folder / f"{kind}.npz", matrix.asformat(kind), compressed=kind == "csc")
    np.savez(
        folder / "adjacency.npz",
        adj_data=np.ones(2, np.float32),
        adj_indices=np.array([1, 2], np.int32),
        adj_indptr=np.array([0, 1, 2, 2], np.int32),
        adj_shape=np.array([3, 3]),
        node_names=np.array(["a", "bc", "ü"]),
    )
    np.savez(
        folder / "edges.npz",
        edges=np.array([[0, 1], [1, 3]]),
        node_labels=np.zeros(4, np.int64),
        node_names=np.array(["a", 1], dtype=object),
    )


def write_npy() -> None:
    folder = CORPUS / "npy"
    np.save(folder / "points.npy", np.arange(6, dtype=np.float64).reshape(2, 3))
    np.save(folder / "fortran.npy", np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)))
    np.save(folder / "words.npy", np.array(["ab", "c"]))
    np.save(folder / "scalar.npy", np.array(True))
    np.save(folder / "structured.npy", np.zeros(1, [("a", "<i4"), ("b", "<f8", (2,))]))
    with open(folder / "version2.npy", "wb") as file:
        np.lib.format.write_array(file, np.zeros(2, np.uint8), version=(2, 0))


def write_ply() -> None:
    for order, name in (("<", "little"), (">", "big")):
        header = (
            f"ply\nformat binary_{name}_endian 1.0\nelement vertex 3\nproperty float x\nproperty double y\n"
            "property float z\nproperty uchar red\nelement material 1\nproperty list ushort short tags\n"
            "element face 1\nproperty uchar flag\nproperty list uchar uint vertex_index\nend_header\n"
        )
        body = b"".join(struct.pack(order + "fdfB", k, k + 0.5, -k, 7) for k in range(3))
        body += struct.pack(order + "Hhh", 2, -1, 1)
        body += struct.pack(order + "BBIII", 1, 3, 0, 1, 2)
        (CORPUS / "ply" / f"{name}.ply").write_bytes(header.encode() + body)


def write_records() -> None:
    (CORPUS / "cifar" / "two.bin").write_bytes(b"".join(bytes([label]) + bytes(3072) for label in (3, 9)))
    (CORPUS / "idx" / "images").write_bytes(bytes([0, 0, 8, 3]) + struct.pack(">III", 2, 3, 2) + bytes(range(12)))
    (CORPUS / "idx" / "labels").write_bytes(bytes([0, 0, 8, 1]) + struct.pack(">I", 2) + bytes([1, 7]))


def write_png() -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    # colour type, bits, samples a pixel
    for name, colour, bits, samples in (("grey", 0, 8, 1), ("rgb", 2, 16, 3), ("palette", 3, 8, 1), ("rgba", 6, 8, 4)):
        rows = b"".join(bytes([filter]) + bytes(range(4 * samples * bits // 8)) for filter in range(5))
        if name == "palette":
            rows = rows.replace(b"\2\3", b"\1\0")
        content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 5, bits, colour, 0, 0, 0))
        if name == "palette":
            content += chunk(b"PLTE", bytes([255, 0, 0, 0, 255, 0]))
        content += chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
        (CORPUS / "image" / f"{name}.png").write_bytes(content)


def write_safetensors() -> None:
    tensors = {"layer.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "step": np.array(3), "none": np.zeros((0, 4))}
    (CORPUS / "safetensors").mkdir(exist_ok=True)
    safetensors.numpy.save_file(tensors, CORPUS / "safetensors" / "small.safetensors", {"format": "pt"})


if __name__ == "__main__":
    write_npz()
    write_npy()
    write_ply()
    write_records()
    write_png()
    write_safetensors()
