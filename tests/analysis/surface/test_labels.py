"""The surface's file in xarray: named axes and units, and still what loss-landscape's plotters read."""

import h5py
import numpy as np
import pytest

from analysis.surface.store import SurfaceStore
from tests.analysis.surface.test_store import provenance


def test_xarray_names_the_axes_and_units_and_what_loss_landscape_reads_is_as_it_was(tmp_path):
    """Also where both axes have one length, which HDF5 without scales has but one phony dimension for."""
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    path, names = tmp_path / "s.h5", ("train_loss", "train_loss_stderr", "train_acc", "lambda_max")
    store = SurfaceStore(np.arange(3.0), np.arange(3.0) / 2, provenance(lambda_max=True), names, path=path)
    store.put(1, 2, dict.fromkeys(names, 0.25))
    store.save()
    with xarray.open_dataset(path, engine="h5netcdf") as found:
        assert found.train_loss.dims == ("ycoordinates", "xcoordinates")
        assert found.train_loss.sel(xcoordinates=2.0, ycoordinates=0.5) == 0.25
        assert not [name for name in found.dims if str(name).startswith("phony")]
        units = {name: found[name].attrs.get("units") for name in (*names, "xcoordinates", "error")}
        assert found.attrs["checkpoint"] == "c" * 64
    assert list(units.values()) == ["nat", "nat", "percent", "loss / parameter²", "1", "1"]
    with h5py.File(path, "r") as f:  # as loss-landscape's plot_2D.py and h52vtp.py have it
        assert {"xcoordinates", "ycoordinates", "train_loss", "train_acc"} <= set(f.keys())
        assert (
            np.meshgrid(np.array(f["xcoordinates"][:]), np.array(f["ycoordinates"][:]))[0].shape
            == f["train_loss"].shape
        )
    assert SurfaceStore.read(path).values["train_loss"][1, 2] == 0.25
