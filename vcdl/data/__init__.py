"""Load data sets from their sources, cut them into shards, and read and write the files of both."""

from vcdl.data.dataset import Dataset, Facts
from vcdl.data.load import facts_of, load_dataset
from vcdl.data.normalisation import normalisation_of
from vcdl.data.npz_file import read_split, write_split
from vcdl.data.samples import Samples, read_samples
from vcdl.data.shards import ShardFile, cut_into_shards, ensure_files, ensure_shards

__all__ = [
    "Dataset",
    "Facts",
    "Samples",
    "ShardFile",
    "cut_into_shards",
    "ensure_files",
    "ensure_shards",
    "facts_of",
    "load_dataset",
    "normalisation_of",
    "read_samples",
    "read_split",
    "write_split",
]
