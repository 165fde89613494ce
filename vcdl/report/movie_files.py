"""Write movies as files: an SVG that is animated without any script, so that it also works in a README, and a GIF.

The SVG contains the finished picture: all subtasks in the colour of work, and above them each in the colour of its
fate. A cover slides off it with the playhead. What appears in a later frame is in a group that CSS hides until then;
each number of a counter lies on a patch that hides the previous one. Readers who prefer no motion, and programs
without CSS animation, get the finished picture.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from vcdl.files.atomic import whole_file
from vcdl.files.extras import require
from vcdl.report.movie import COLUMN, CURVE_TOP, FRAMES, KINDS, LEFT, RIGHT, WIDTH, Label, Movie, Stroke

_MOTION_S, _REST_S = 24.0, 5.0
"""Seconds for the whole run, in which a subtask of a long one is still seen, and for the finished picture."""
_COLOURS = {
    "paper": ("#ffffff", "#14171a"),
    "row": ("#f2f3f5", "#1e2226"),
    "rule": ("#d5d9de", "#3a4047"),
    "faint": ("#59616b", "#a3abb4"),
    "ink": ("#1b1f24", "#e7eaed"),
    **{kind: (light, dark) for kind, (_, light, dark) in KINDS.items()},
}
"""Kind of line, text or area → its colours on light and dark paper."""
_STYLE = """\
text{font:12px system-ui,sans-serif;fill:var(--faint)}.right{text-anchor:end}.middle{text-anchor:middle}
.title,.number{font-size:15px;font-weight:600;fill:var(--ink)}.number{font-size:18px}.paper{fill:var(--paper)}
path{fill:none;stroke-linejoin:round}
"""


def write_movie(movie: Movie, file: Path) -> None:
    """Write a movie in the format of the file's suffix, `.gif` or `.svg`.

    Raises:
        RunFolderError: The file cannot be written.
        GridError: Matplotlib, which has the fonts of a GIF, is not installed.
    """
    with whole_file(file) as temporary:
        if file.suffix == ".gif":
            _write_gif(movie, temporary)
        else:
            temporary.write_text(svg_of(movie), encoding="utf-8")


def svg_of(movie: Movie) -> str:
    """Return a movie as an SVG that refers to no other file."""
    covered, above = _groups(movie, is_covered=True), _groups(movie, is_covered=False)
    counts = ", ".join(f"{count} {kind}" for kind, count in movie.kinds.items())
    top, height = CURVE_TOP - 8, movie.bottom - CURVE_TOP + 10
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {movie.height:.0f}" width="{WIDTH}" '
            f'height="{movie.height:.0f}" role="img" aria-label="{escape(f"{movie.title}; {counts}")}">',
            f"<style>{_colours()}{_STYLE}{_motion()}</style>",
            f'<path class="paper" d="M0 0H{WIDTH}V{movie.height:.0f}H0z"/>',
            *covered,
            f'<path class="paper cover" d="M{LEFT - 1} {top}h{WIDTH}v{height:.0f}h-{WIDTH}z"/>',
            f'<path class="ink cover" stroke-opacity=".5" d="M{LEFT} {top}v{height:.0f}"/>',
            *above,
            "</svg>\n",
        ]
    )


def _colours() -> str:
    """Return the CSS of the colours, for light and dark."""
    light, dark = ("".join(f"--{_class(kind)}:{both[at]};" for kind, both in _COLOURS.items()) for at in (0, 1))
    strokes = "".join(f".{_class(kind)}{{stroke:var(--{_class(kind)})}}" for kind in _COLOURS if kind != "paper")
    return f":root{{{light}}}\n@media(prefers-color-scheme:dark){{:root{{{dark}}}}}\n{strokes}\n"


def _class(kind: str) -> str:
    return kind.replace(" ", "-")


def _motion() -> str:
    """Return the CSS that moves the cover and shows each group from its frame on."""
    whole_s, way, end = _MOTION_S + _REST_S, f"translateX({RIGHT - LEFT}px)", 100 * _MOTION_S / (_MOTION_S + _REST_S)
    frames = "".join(
        f".f{frame}{{animation-name:f{frame}}}"
        f"@keyframes f{frame}{{0%{{visibility:hidden}}{frame / FRAMES * end:.2f}%{{visibility:visible}}}}\n"
        for frame in range(1, FRAMES + 1)
    )
    return (
        # The finished picture is the default and motion is added to it, so that readers without motion see the end.
        f".cover{{transform:{way}}}\n@media(prefers-reduced-motion:no-preference){{\n"
        f".cover{{animation:slide {whole_s:g}s linear infinite}}.f{{animation:f1 {whole_s:g}s step-end infinite}}\n"
        f"@keyframes slide{{0%{{transform:translateX(0)}}{end:.2f}%,to{{transform:{way}}}}}\n{frames}}}\n"
    )


def _groups(movie: Movie, is_covered: bool) -> Iterator[str]:
    """Yield the SVG of the shapes that the cover hides, or of the others, in a group for each frame."""
    # Group shapes by frame, so that CSS needs one animation for each frame and not for each shape.
    by_frame: defaultdict[int, list[Stroke | Label]] = defaultdict(list)
    for shape in movie.shapes:
        if (isinstance(shape, Stroke) and shape.is_covered) is is_covered:
            by_frame[shape.frame].append(shape)
    for frame, shapes in sorted(by_frame.items()):
        # One path for all lines of a colour and width: thousands of elements would make a browser slow.
        paths: defaultdict[tuple[str, float], str] = defaultdict(str)
        for shape in shapes:
            if isinstance(shape, Stroke):
                paths[shape.kind, shape.width] += _path(shape)
        drawn = [
            f'<path class="{_class(kind)}" stroke-width="{wide:.3g}" d="{d}"/>' for (kind, wide), d in paths.items()
        ]
        drawn += [_text(shape) for shape in shapes if isinstance(shape, Label)]
        yield f'<g class="f f{frame}">{"".join(drawn)}</g>' if frame else "".join(drawn)


def _path(stroke: Stroke) -> str:
    (x, y), *rest = stroke.points
    return f"M{x:.1f} {y:.1f}" + "".join(f"H{to:.1f}" if up == y else f"L{to:.1f} {up:.1f}" for to, up in rest)


def _text(label: Label) -> str:
    """Return the SVG of a text, with a patch that hides the previous one at its place."""
    patch = f'<path class="paper" d="M{label.x:.0f} {label.y - 18:.0f}h{COLUMN}v24h-{COLUMN}z"/>' if label.frame else ""
    style = f' class="{label.style}"' if label.style else ""
    return f'{patch}<text x="{label.x:.4g}" y="{label.y:.4g}"{style}>{escape(label.words)}</text>'


def _write_gif(movie: Movie, file: Path) -> None:
    """Write a movie as a GIF that repeats without end. Raises GridError if Matplotlib or Pillow is missing."""
    require("plot", "matplotlib", "PIL")
    import matplotlib
    from PIL import Image, ImageColor, ImageDraw, ImageFont

    fonts = {
        style: ImageFont.truetype(f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans{weight}.ttf", size)
        for style, weight, size in (("title", "-Bold", 14), ("number", "-Bold", 16), ("", "", 11))
    }

    def paint(image: Image.Image, shapes: Iterable[Stroke | Label]) -> Image.Image:
        draw = ImageDraw.Draw(image)
        for shape in shapes:
            if isinstance(shape, Stroke):
                draw.line(shape.points, _COLOURS[shape.kind][0], max(1, round(shape.width)))
                continue
            if shape.frame:
                draw.rectangle((shape.x, shape.y - 18, shape.x + COLUMN - 1, shape.y + 5), paper)
            ink = _COLOURS["ink" if shape.style in fonts and shape.style else "faint"][0]
            anchor = {"right": "rs", "middle": "ms"}.get(shape.style, "ls")
            draw.text((shape.x, shape.y), shape.words, ink, fonts.get(shape.style, fonts[""]), anchor)
        return image

    paper, still = _COLOURS["paper"][0], list[Stroke | Label]()
    lasting = defaultdict[int, list[Stroke | Label]](list)
    for shape in movie.shapes:
        is_lasting = shape.is_covered if isinstance(shape, Stroke) else shape.style == "number"
        (lasting[shape.frame] if is_lasting else still).append(shape)
    tones = {kind: ImageColor.getrgb(light) for kind, (light, _) in _COLOURS.items()}
    edges = [
        [ink + (255 - ink) * step // 8 for ink in tones[kind]] for kind in ("ink", "faint") for step in range(1, 8)
    ]
    # One palette for all frames: a palette for each one would make colours flicker, and the file larger.
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for tone in [*tones.values(), *edges] for part in tone])  # and of letters' smooth edges
    canvas, images = Image.new("RGB", (WIDTH, round(movie.height)), paper), []
    for frame in range(FRAMES + 1):
        # The canvas keeps what has appeared, so each frame only adds to it. The cover and what lies above are drawn on
        # a copy.
        image = paint(canvas, lasting[frame]).copy()
        x = LEFT + frame / FRAMES * (RIGHT - LEFT)
        ImageDraw.Draw(image).rectangle((x, CURVE_TOP - 8, WIDTH, movie.bottom), paper)
        paint(image, [*still, Stroke("faint", 1, ((x, CURVE_TOP - 8), (x, movie.bottom)))])
        images.append(image.quantize(palette=palette, dither=Image.Dither.NONE))
    times_ms = [round(1000 * _MOTION_S / FRAMES)] * FRAMES + [round(1000 * _REST_S)]
    images[0].save(file, save_all=True, append_images=images[1:], duration=times_ms, loop=0)
