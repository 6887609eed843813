def _sandstorm_prepare():
    """Charts and tables, also as data: matplotlib figures and pandas frames get a representation of our own, and images
    that are saved are shown. Nothing is imported here; what the user imports is met when it comes."""
    import builtins
    import importlib.util
    import re
    import sys

    chart_type = "application/vnd.sandstorm.chart+json"
    data_type = "application/vnd.sandstorm.data+json"
    most_cells = 100_000

    def plain(value):
        """A value that JSON has: numbers, texts, moments as texts."""
        if hasattr(value, "item") and callable(value.item):
            try:
                value = value.item()
            except ValueError:
                return str(value)
        if hasattr(value, "isoformat"):
            return value.isoformat()
        if isinstance(value, float) and value != value or value in (float("inf"), float("-inf")):
            return None
        return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)

    def number(value):
        """Numbers of charts are floats, as clients' types have them."""
        value = plain(value)
        return float(value) if type(value) is int else value

    def rounded(value):
        """A number that was computed, without the digits that only its binary form has: eight decimal places where it
        has one digit before them, two fewer for each more."""
        from decimal import Context, Decimal

        value = number(value)
        if not isinstance(value, float):
            return value
        exact = Decimal(repr(value))
        return float(Context(prec=max(1, 8 - exact.adjusted())).plus(exact))

    def named(label, kinds):
        """A label that nobody gave: matplotlib counts artists behind an underscore."""
        found = re.fullmatch(r"_(child|container)(\d+)", label)
        return "%s %s" % (kinds, found.group(2)) if found else label

    def unit(label):
        found = re.search(r"\s\((.*?)\)|\[(.*?)\]", label or "")
        return (found.group(1) or found.group(2)) if found else None

    def is_moment(value):
        return hasattr(value, "isoformat") or type(value).__name__ == "datetime64"

    def moment(value):
        return str(value)[:26] if type(value).__name__ == "datetime64" else number(value)

    def scale(values, axis_scale):
        first = next(iter(values), None)
        if is_moment(first):
            return "datetime"
        if isinstance(first, str):
            return "categorical"
        known = ("linear", "log", "symlog", "logit", "function", "functionlog", "asinh")
        return axis_scale if axis_scale in known else "unknown"

    def flat(axes):
        x_label, y_label = axes.get_xlabel() or None, axes.get_ylabel() or None
        return {
            "title": axes.get_title() or None,
            "x_label": x_label,
            "y_label": y_label,
            "x_unit": unit(x_label),
            "y_unit": unit(y_label),
        }

    def turned(labels, lying):
        """Of a chart that lies on its side, the axis of the values is y all the same."""
        swap = {"x_label": "y_label", "y_label": "x_label", "x_unit": "y_unit", "y_unit": "x_unit"} if lying else {}
        return {name: labels[swap.get(name, name)] for name in labels}

    def ticks(axis, kind):
        values = axis.get_ticklocs()
        if kind == "datetime":
            from matplotlib.dates import num2date

            return [num2date(value).isoformat() for value in values]
        return [number(value) for value in values]

    def points(axes, kind, series):
        all_x = [x for _, pairs in series for x, _ in pairs]
        all_y = [y for _, pairs in series for _, y in pairs]
        x_scale, y_scale = scale(all_x, axes.get_xscale()), scale(all_y, axes.get_yscale())
        return {
            "type": kind,
            **flat(axes),
            "x_ticks": ticks(axes.xaxis, x_scale),
            "x_tick_labels": [text.get_text() for text in axes.get_xticklabels()],
            "x_scale": x_scale,
            "y_ticks": ticks(axes.yaxis, y_scale),
            "y_tick_labels": [text.get_text() for text in axes.get_yticklabels()],
            "y_scale": y_scale,
            "elements": [
                {"label": label, "points": [[moment(x), moment(y)] for x, y in pairs]} for label, pairs in series
            ],
        }

    def bars(axes, containers):
        elements, lying = [], False
        for group in containers:
            lying = getattr(group, "orientation", "vertical") == "horizontal"
            axis = axes.yaxis if lying else axes.xaxis
            names = {round(float(at), 6): text.get_text() for at, text in zip(axis.get_ticklocs(), axis.get_ticklabels())}
            for bar in group.patches:
                middle = bar.get_y() + bar.get_height() / 2 if lying else bar.get_x() + bar.get_width() / 2
                label = names.get(round(float(middle), 6)) or str(plain(middle))
                value = bar.get_width() if lying else bar.get_height()
                group_label = named(str(group.get_label()), "Group")
                elements.append({"label": label, "group": group_label, "value": number(value)})
        return {"type": "bar", **turned(flat(axes), lying), "elements": elements}

    def slices(axes, wedges):
        elements = [
            {"label": wedge.get_label(), "angle": abs(rounded(wedge.theta2 - wedge.theta1)), "radius": number(wedge.r)}
            for wedge in wedges
        ]
        return {"type": "pie", "title": axes.get_title() or None, "elements": elements}

    def boxes(axes, stats, lying):
        labels = [text.get_text() for text in (axes.get_yticklabels() if lying else axes.get_xticklabels())]
        elements = [
            {
                "label": str(box.get("label") or (labels[place] if place < len(labels) else place + 1)),
                "min": rounded(box["whislo"]),
                "first_quartile": rounded(box["q1"]),
                "median": rounded(box["med"]),
                "third_quartile": rounded(box["q3"]),
                "max": rounded(box["whishi"]),
                "outliers": [rounded(value) for value in box.get("fliers", ())],
            }
            for place, box in enumerate(stats)
        ]
        return {"type": "box_and_whisker", **turned(flat(axes), lying), "elements": elements}

    def chart_of_axes(axes):
        from matplotlib.collections import PathCollection
        from matplotlib.container import BarContainer
        from matplotlib.patches import Wedge

        stats = getattr(axes, "_sandstorm_boxes", None)
        if stats:
            return boxes(axes, list(stats.values()), axes._sandstorm_boxes_lie)
        wedges = [patch for patch in axes.patches if isinstance(patch, Wedge)]
        if wedges:
            return slices(axes, wedges)
        groups = [group for group in axes.containers if isinstance(group, BarContainer)]
        if groups:
            return bars(axes, groups)
        dots = [dot for dot in axes.collections if isinstance(dot, PathCollection)]
        if dots:
            series = [(str(dot.get_label()), [tuple(pair) for pair in dot.get_offsets()]) for dot in dots]
            return points(axes, "scatter", series)
        # Lines that only mark a height or a place, as a grid does, are no data.
        lines = [line for line in axes.lines if all(line.get_transform().contains_branch_seperately(axes.transData))]
        if lines:
            series = [
                (named(str(line.get_label()), "Line"), list(zip(line.get_xdata(orig=True), line.get_ydata(orig=True))))
                for line in lines
            ]
            return points(axes, "line", series)
        return {"type": "unknown", "title": axes.get_title() or None, "elements": []}

    def chart_of(figure):
        charts = [chart_of_axes(axes) for axes in figure.axes]
        if len(charts) == 1:
            return charts[0]
        title = getattr(figure, "_suptitle", None)
        return {"type": "superchart", "title": title.get_text() if title else None, "elements": charts}

    def figure_bundle(figure, include=None, exclude=None):
        try:
            return {chart_type: chart_of(figure)} if figure.axes else {}
        except Exception:
            return {}

    def frame_bundle(frame, include=None, exclude=None):
        try:
            if frame.size > most_cells:
                return {}
            columns = frame.to_dict(orient="list")
            return {data_type: {str(name): [plain(value) for value in column] for name, column in columns.items()}}
        except Exception:
            return {}

    def meet_figure(module):
        module.Figure._repr_mimebundle_ = figure_bundle

    def meet_axes(module):
        original = module.Axes.bxp

        def bxp(self, bxpstats, positions=None, *args, **kwargs):
            drawn = getattr(self, "_sandstorm_boxes", {})
            places = range(1, len(bxpstats) + 1) if positions is None else positions
            # What is drawn at the same place again, as with other colours, is the same box.
            drawn.update((float(place), box) for place, box in zip(places, bxpstats))
            self._sandstorm_boxes = drawn
            lies = kwargs.get("vert") is False or kwargs.get("orientation") == "horizontal"
            self._sandstorm_boxes_lie = lies
            return original(self, bxpstats, positions, *args, **kwargs)

        bxp.__doc__ = original.__doc__
        module.Axes.bxp = bxp

    def meet_frame(module):
        module.DataFrame._repr_mimebundle_ = frame_bundle

    def meet_image(module):
        original = module.Image.save

        def save(self, fp, *args, **kwargs):
            # Into a file by its name, as matplotlib saves a figure, too; what goes elsewhere is no picture for a reader.
            if isinstance(fp, str):
                try:
                    shown = self if self.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I", "I;16") else self.convert("RGB")
                    builtins.display(shown)
                except Exception:
                    pass
            return original(self, fp, *args, **kwargs)

        save.__doc__ = original.__doc__
        module.Image.save = save

    meetings = {
        "PIL.Image": meet_image,
        "matplotlib.figure": meet_figure,
        "matplotlib.axes._axes": meet_axes,
        "pandas.core.frame": meet_frame,
    }

    class Meeting:
        """Looks at modules as they are imported."""

        def find_spec(self, name, path=None, target=None):
            meet = meetings.pop(name, None)
            if meet is None:
                return None
            # With the name gone from `meetings`, this finder stays out of the way.
            spec = importlib.util.find_spec(name)
            if spec is None or spec.loader is None:
                return spec
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                try:
                    meet(module)
                except Exception:
                    pass

            spec.loader.exec_module = exec_module
            return spec

    for name in [name for name in meetings if name in sys.modules]:
        meetings.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, Meeting())


_sandstorm_prepare()
del _sandstorm_prepare
