"""What VTK files hold is the surface: every value to the last bit, at its coordinates."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from analysis.surface.marked_points import Mark
from analysis.surface.plots.vtk import save_vtk, save_vtk_models
from landscape import FedscapeError
from tests.analysis.surface.plots.test_surface_plots import X, Y, made


def hard() -> object:
    loss = made().loss + np.pi * 1e-9
    loss[0, 1], loss[2, 3], loss[4, 0] = np.nan, np.inf, 0.0
    computed = np.arange(35).reshape(5, 7) % 2 == 0
    return made(loss, loss_stderr=made().loss / 7, computed=computed)


def legacy(path) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    lines = path.read_text(encoding="ascii").splitlines()
    assert lines[0] == "# vtk DataFile Version 3.0"
    assert len(lines[1]) < 256
    assert lines[2:6] == ["ASCII", "DATASET STRUCTURED_GRID", "DIMENSIONS 7 5 1", "POINTS 35 double"]
    points = np.array([line.split() for line in lines[6:41]], float)
    assert lines[41] == "POINT_DATA 35"
    arrays = {}
    for start in range(42, len(lines), 7):
        assert lines[start + 1] == "LOOKUP_TABLE default"
        values = " ".join(lines[start + 2 : start + 7]).split()
        arrays[lines[start].split()[1]] = np.array(values, float)
    return points, arrays


def xml(path) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    root = ElementTree.parse(path).getroot()
    assert root.find(".//Piece").get("Extent") == "0 6 0 4 0 0"
    codes = [int(code) for code in root.find(".//FieldData/Array").text.split()]
    assert "checkpoint cccccccc" in bytes(codes[:-1]).decode()
    arrays = {a.get("Name"): np.array(a.text.split(), float) for a in root.findall(".//PointData/DataArray")}
    return np.array(root.find(".//Points/DataArray").text.split(), float).reshape(-1, 3), arrays


@pytest.mark.parametrize(("name", "parse"), [("s.vtk", legacy), ("s.vts", xml)])
def test_every_value_comes_back_at_its_coordinates(name, parse, tmp_path):
    surface = hard()
    save_vtk(surface, tmp_path / name)
    points, arrays = parse(tmp_path / name)
    assert set(arrays) == {"loss", "log10_loss", "accuracy", "loss_stderr", "measured"}
    k = 0
    for j, y in enumerate(Y):
        for i, x in enumerate(X):
            assert points[k].tolist() == [x, y, 0]
            for key in ("loss", "accuracy", "loss_stderr"):
                np.testing.assert_array_equal(arrays[key][k], getattr(surface, key)[j, i])
            assert arrays["measured"][k] == surface.computed[j, i]
            k += 1
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(arrays["log10_loss"], np.log10(surface.loss).ravel())


@pytest.mark.parametrize(("name", "parse"), [("s.vtk", legacy), ("s.vts", xml)])
def test_test_data_are_arrays_of_their_own(name, parse, tmp_path):
    save_vtk(made(test=made(2 * made().loss)), tmp_path / name)
    _, arrays = parse(tmp_path / name)
    assert list(arrays) == [
        "loss",
        "log10_loss",
        "accuracy",
        "test_loss",
        "test_log10_loss",
        "test_accuracy",
        "measured",
    ]
    np.testing.assert_array_equal(arrays["test_loss"], 2 * arrays["loss"])


@pytest.mark.parametrize("name", ["s.vtk", "s.vts"])
def test_pyvista_reads_the_same(name, tmp_path):
    pyvista = pytest.importorskip("pyvista", reason="needs PyVista")
    surface = hard()
    save_vtk(surface, tmp_path / name)
    grid = pyvista.read(tmp_path / name)
    assert tuple(grid.dimensions) == (7, 5, 1)
    np.testing.assert_array_equal(grid.points[:, 0].reshape(5, 7)[0], X)
    np.testing.assert_array_equal(np.asarray(grid["loss"]).reshape(5, 7), surface.loss)
    np.testing.assert_array_equal(np.asarray(grid["measured"]).reshape(5, 7), surface.computed)


def test_models_are_points_and_the_trajectory_a_line(tmp_path):
    surface = made(marks=(Mark("a\nb", 0.5, 0.25), Mark("ü", 1.0, 0.5)), trajectory=np.array([[0.1, 0.2], [0.3, 0.4]]))
    save_vtk_models(surface, tmp_path / "m.vtk")
    lines = (tmp_path / "m.vtk").read_text(encoding="ascii").splitlines()
    assert lines[1] == "Fedscape: models 0: a b; 1: ?"
    assert lines[4:9] == ["POINTS 4 double", "0.5 0.25 0", "1.0 0.5 0", "0.1 0.2 0", "0.3 0.4 0"]
    assert lines[9:14] == ["VERTICES 2 4", "1 0", "1 1", "LINES 1 3", "2 2 3"]
    assert lines[-4:] == ["0", "1", "-1", "-1"]


def test_bad_names_are_told_in_a_sentence(tmp_path):
    with pytest.raises(FedscapeError, match=r"end it in \.vts \(XML\) or \.vtk"):
        save_vtk(made(), tmp_path / "s.obj")
    with pytest.raises(FedscapeError, match="cannot write"):
        save_vtk(made(), tmp_path / "none" / "s.vts")
    with pytest.raises(FedscapeError, match=r"end the name in \.vtk"):
        save_vtk_models(made(), tmp_path / "m.vts")
