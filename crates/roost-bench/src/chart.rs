//! Charts as SVG: curves over an axis, and bars side by side.

use std::fmt::Write as _;

/// Size of a chart, in its own units.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 260.0;
/// Where axes are, so that their labels have room.
const LEFT: f64 = 56.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 34.0;

/// The most bars of one series; beyond them the page would be all bars.
pub(crate) const MOST_BARS: usize = 128;

/// A named line or row of bars. Its colour is that of its place in the list.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// Points of a line, from left to right; of bars only the second matters.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Words on a chart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Labels {
    pub(crate) title: &'static str,
    pub(crate) across: &'static str,
}

/// Lines over a horizontal axis that is logarithmic where `log`; upwards from 0 to `top`.
pub(crate) fn lines(labels: Labels, series: &[Series], log: bool, top: f64, unit: &str) -> String {
    let across = |value: f64| if log { value.max(1e-3).log10() } else { value };
    let all = || series.iter().flat_map(|one| one.points.iter()).map(|point| across(point.0));
    let (mut low, mut high) = (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
    if !low.is_finite() {
        return nothing(labels);
    }
    if log {
        (low, high) = (low.floor(), high.ceil());
    } else {
        low = low.min(0.0);
    }
    if high - low < 1e-9 {
        high = low + 1.0;
    }
    let x = |value: f64| LEFT + (across(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT);
    let mut out = begin(labels, top, unit);
    let steps: Vec<f64> = match log {
        true => (low as i32..=high as i32).map(|power| 10f64.powi(power)).collect(),
        false => (0..=4).map(|step| low + (high - low) * f64::from(step) / 4.0).collect(),
    };
    for step in steps {
        let at = x(step);
        let _infallible = write!(
            out,
            "<line class=grid x1={at:.1} x2={at:.1} y1={TOP} y2={:.1} /><text class=low x={at:.1} y={:.1}>{}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 14.0,
            short(step)
        );
    }
    for (number, one) in series.iter().enumerate() {
        let _infallible = write!(out, "<polyline class=\"line c{}\" points=\"", number % COLOURS);
        for (place, value) in &one.points {
            let _infallible = write!(out, "{:.1},{:.1} ", x(*place), y(*value, top));
        }
        out.push_str("\" />");
    }
    out + "</svg></figure>"
}

/// Bars side by side, those of a series together.
pub(crate) fn bars(labels: Labels, series: &[Series], unit: &str) -> String {
    let count: usize = series.iter().map(|one| one.points.len().min(MOST_BARS)).sum();
    let top = series.iter().flat_map(|one| one.points.iter()).map(|point| point.1).fold(0.0, f64::max);
    if count == 0 || top <= 0.0 {
        return nothing(labels);
    }
    let mut out = begin(labels, top, unit);
    let slots = count + series.len() - 1;
    let step = (WIDTH - LEFT - RIGHT) / slots as f64;
    let mut slot = 0.0;
    for (number, one) in series.iter().enumerate() {
        for (_, value) in one.points.iter().take(MOST_BARS) {
            let from = y(*value, top);
            let _infallible = write!(
                out,
                "<rect class=c{} x={:.1} y={from:.1} width={:.1} height={:.1}><title>{}: {}{unit}</title></rect>",
                number % COLOURS,
                LEFT + slot * step,
                (step * 0.85).min(60.0),
                HEIGHT - BOTTOM - from,
                escape(&one.name),
                short(*value),
            );
            slot += 1.0;
        }
        slot += 1.0;
    }
    out + "</svg></figure>"
}

/// As many as the page's style has.
pub(crate) const COLOURS: usize = 6;

fn y(value: f64, top: f64) -> f64 {
    let share = (value / top.max(1e-9)).clamp(0.0, 1.0);
    HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
}

fn begin(labels: Labels, top: f64, unit: &str) -> String {
    let mut out = format!(
        "<figure><figcaption>{0}</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-label=\"{0}\">",
        labels.title
    );
    for step in 0..=4 {
        let value = top * f64::from(step) / 4.0;
        let at = y(value, top);
        let _infallible = write!(
            out,
            "<line class=grid x1={LEFT} x2={:.1} y1={at:.1} y2={at:.1} /><text class=side x={:.1} y={:.1}>{}{unit}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            short(value)
        );
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    let _infallible =
        write!(out, "<text class=low x={middle:.1} y={:.1}>{}</text>", HEIGHT - 4.0, labels.across);
    out
}

fn nothing(labels: Labels) -> String {
    format!("<figure><figcaption>{}</figcaption><p>Not told by the endpoints.</p></figure>", labels.title)
}

/// A number for an axis: three digits, thousands as k.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.3}M", v / 1e6).replace(".000", ""),
        v if v >= 1e4 => format!("{:.0}k", v / 1e3),
        v if v >= 10.0 || v.fract() == 0.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{v:.1}"),
        v => format!("{v:.3}").trim_end_matches('0').to_owned(),
    }
}

/// Text as HTML.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}
