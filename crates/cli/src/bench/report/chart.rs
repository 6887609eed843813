//! The chart: p50 of each case with a line to p90, and below it what a loaded server does in a second.

use std::fmt::Write;

use crate::bench::figures::{Figures, Row};
use crate::bench::samples::Summary;

const LEFT: f64 = 330.0;
const WIDTH: f64 = 560.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 76.0;
const BAR: f64 = 16.0;
const STEP: f64 = 22.0;
const OURS: &str = "#c2571a";
const THEIRS: &str = "#8a8f98";

/// Cases that are comparable stand together. The last one takes what is left.
const GROUPS: [(&str, &str); 4] = [
    ("python", "Python, a program that prints"),
    ("node", "Node, a program that prints"),
    ("bash", "Bash, a program that prints"),
    ("", "Requests of other kinds"),
];

pub(super) fn draw(figures: &Figures) -> String {
    let mut canvas = Canvas { svg: String::new(), y: TOP };
    let latencies: Vec<(&Row, Summary)> =
        figures.rows.iter().filter_map(|row| Some((row, row.latency_ms?))).collect();
    let scale = Scale::of(latencies.iter().map(|(_, latency)| (latency.p50, latency.p90)));
    for (group, title) in GROUPS {
        let mut rows: Vec<_> = latencies.iter().filter(|(row, _)| group_of(&row.name) == group).collect();
        rows.sort_by(|(_, one), (_, other)| one.p50.total_cmp(&other.p50));
        if !rows.is_empty() {
            canvas.heading(title);
            rows.iter().for_each(|(row, latency)| canvas.latency(&scale, row, *latency));
        }
    }
    let bottom = canvas.y;
    canvas.throughput(figures);
    let (width, height) = (LEFT + WIDTH + RIGHT, canvas.y + 10.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"16\" fill=\"#222\">One at a time</text>\n\
         <text x=\"16\" y=\"46\" fill=\"#555\">milliseconds on a logarithmic scale: bar p50, line to p90; orange is sandstorm</text>\n"
    );
    for mark in scale.marks() {
        let x = scale.place(mark);
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{:.0}\" x2=\"{x:.1}\" y2=\"{bottom:.0}\" stroke=\"#e3e3e3\"/>\
             <text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"#777\">{mark}</text>",
            TOP - 4.0,
            TOP - 10.0
        );
    }
    svg + &canvas.svg + "</svg>\n"
}

fn group_of(name: &str) -> &str {
    match name {
        "numpy" => "python",
        _ => name.rsplit_once('-').map_or("", |(_, language)| language),
    }
}

/// Lines from top to bottom.
struct Canvas {
    svg: String,
    y: f64,
}

impl Canvas {
    fn heading(&mut self, text: &str) {
        let _ = writeln!(
            self.svg,
            "<text x=\"16\" y=\"{:.1}\" font-weight=\"bold\" fill=\"#222\">{text}</text>",
            self.y + 14.0
        );
        self.y += STEP;
    }

    fn latency(&mut self, scale: &Scale, row: &Row, latency: Summary) {
        let (end, far) = (scale.place(latency.p50), scale.place(latency.p90));
        let middle = self.y + BAR / 2.0;
        let _ = writeln!(
            self.svg,
            "<line x1=\"{end:.1}\" y1=\"{middle:.1}\" x2=\"{far:.1}\" y2=\"{middle:.1}\" stroke=\"#444\"/>"
        );
        self.bar(&row.title, end - LEFT, far + 8.0, row.ours, &short(latency.p50));
    }

    fn throughput(&mut self, figures: &Figures) {
        let rates =
            figures.throughput.iter().map(|row| (row.clients, row.ours.per_second, row.bwrap.as_ref().ok()));
        let rates: Vec<_> =
            rates.map(|(clients, ours, bwrap)| (clients, ours, bwrap.map(|load| load.per_second))).collect();
        let most = rates.iter().map(|(_, ours, bwrap)| ours.max(bwrap.unwrap_or(0.0))).fold(0.0, f64::max);
        if most <= 0.0 {
            return;
        }
        self.y += 14.0;
        self.heading("Fresh Python sandboxes in a second, sustained");
        for (clients, ours, bwrap) in rates {
            let who = if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
            for (name, rate, is_ours) in [("sandstorm", Some(ours), true), ("bwrap", bwrap, false)] {
                if let Some(rate) = rate {
                    let width = WIDTH * rate / most;
                    self.bar(
                        &format!("{who}: {name}"),
                        width,
                        LEFT + width + 8.0,
                        is_ours,
                        &format!("{rate:.0}"),
                    );
                }
            }
        }
    }

    fn bar(&mut self, name: &str, width: f64, label_at: f64, ours: bool, label: &str) {
        let (y, text) = (self.y, self.y + BAR - 4.0);
        let colour = if ours { OURS } else { THEIRS };
        let _ = writeln!(
            self.svg,
            "<text x=\"{:.0}\" y=\"{text:.1}\" text-anchor=\"end\" fill=\"#222\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>\
             <text x=\"{label_at:.1}\" y=\"{text:.1}\" fill=\"#222\">{label}</text>",
            LEFT - 10.0,
            escape(name),
        );
        self.y += STEP;
    }
}

fn short(milliseconds: f64) -> String {
    if milliseconds < 10.0 { format!("{milliseconds:.2} ms") } else { format!("{milliseconds:.0} ms") }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Powers of ten between two ends: the cases lie three of them apart.
struct Scale {
    low: i32,
    high: i32,
}

impl Scale {
    fn of(values: impl Iterator<Item = (f64, f64)>) -> Self {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for (p50, p90) in values {
            (low, high) = (low.min(p50), high.max(p90));
        }
        if !low.is_finite() || low <= 0.0 {
            return Self { low: -1, high: 1 };
        }
        let low = low.log10().floor() as i32;
        Self { low, high: (high.log10().ceil() as i32).max(low + 1) }
    }

    fn place(&self, value: f64) -> f64 {
        let share = (value.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        LEFT + WIDTH * share.clamp(0.0, 1.0)
    }

    fn marks(&self) -> impl Iterator<Item = f64> {
        (self.low..=self.high).map(|power| 10_f64.powi(power))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_between_their_powers_of_ten() {
        let scale = Scale::of([(0.4, 0.6), (350.0, 420.0)].into_iter());
        assert_eq!((scale.low, scale.high), (-1, 3));
        assert!((scale.place(0.1) - LEFT).abs() < 1e-9);
        assert!((scale.place(10.0) - (LEFT + WIDTH / 2.0)).abs() < 1e-9);
        assert_eq!(Scale::of(std::iter::empty()).marks().count(), 3);
    }

    #[test]
    fn cases_of_one_language_stand_together() {
        assert_eq!(group_of("bwrap-node"), "node");
        assert_eq!(group_of("fresh-python"), group_of("numpy"));
        assert_eq!(group_of("context"), "");
    }

    #[test]
    fn a_chart_of_nothing_is_still_a_chart() {
        let svg = draw(&Figures::default());
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert_eq!(escape("a<b & c"), "a&lt;b &amp; c");
    }
}
