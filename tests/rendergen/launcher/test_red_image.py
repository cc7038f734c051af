from __future__ import annotations

import base64
import io

from PIL import Image

from rendergen.launcher.red_image import red_png, red_png_data_url


def test_it_is_a_red_png() -> None:
    """An imaging library reads the size that was asked for, and one colour."""
    with Image.open(io.BytesIO(red_png(24))) as image:
        assert (image.format, image.size) == ("PNG", (24, 24))
        assert image.getcolors() == [(576, (230, 25, 30))]


def test_the_data_url_holds_it() -> None:
    """The bytes come back out of the URL."""
    head, _, data = red_png_data_url(24).partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(data) == red_png(24)
