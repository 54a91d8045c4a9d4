"""Writing pictures: analysis' name for :mod:`landscape.pictures`."""

from landscape.pictures import check_picture, save_figure

__all__ = ["check_picture", "save_figure"]
