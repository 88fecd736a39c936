//! The report as one page: charts and the table, without anything from elsewhere.

use std::fmt::Write as _;

use crate::chart::{self, COLOURS, Labels, MOST_BARS, Series, escape};
use crate::report::{Figures, Point, table};

const STYLE: &str = include_str!("page.css");

/// Points of a curve of shares.
const STEPS: usize = 200;

/// Pieces of time in which shares are counted.
const PIECES: usize = 60;

/// An HTML page with the distributions of TTFT and ITL, the cached share over time, the answers of each worker, and the
/// table. Stands alone, light or dark as its reader prefers.
pub fn page(figures: &[Figures]) -> String {
    let mut out = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>roost replay</title><style>{STYLE}</style><h1>roost replay</h1><ul class=legend>"
    );
    for (number, one) in figures.iter().enumerate() {
        let _infallible = write!(out, "<li><i class=c{}></i>{}</li>", number % COLOURS, escape(&one.name));
    }
    out.push_str("</ul><main>");
    let each = |of: &dyn Fn(&Figures) -> Vec<(f64, f64)>| -> Vec<Series> {
        figures.iter().map(|one| Series { name: one.name.clone(), points: of(one) }).collect()
    };
    let below = |title| Labels { title, across: "ms" };
    let first = each(&|one| shares(one.points.iter().filter_map(|point| point.first_token).collect()));
    out.push_str(&chart::lines(below("TTFT: share of the answers below"), &first, true, 100.0, "%"));
    let between = each(&|one| shares(one.points.iter().filter_map(|point| point.between_tokens).collect()));
    out.push_str(&chart::lines(below("ITL: share of the answers below"), &between, true, 100.0, "%"));
    let labels = Labels { title: "Cached share of the prompt tokens over time", across: "s" };
    out.push_str(&chart::lines(labels, &each(&cached), false, 100.0, "%"));
    let labels = Labels { title: "Answers of each worker", across: "workers, the busiest first" };
    out.push_str(&chart::bars(labels, &each(&|one| per_worker(one, |_| 1.0)), ""));
    let labels =
        Labels { title: "Prompt tokens computed by each worker", across: "workers, the busiest first" };
    let computed = |point: &Point| point.prompt.saturating_sub(point.cached) as f64;
    out.push_str(&chart::bars(labels, &each(&|one| per_worker(one, computed)), ""));
    out.push_str("</main>");
    rows(&mut out, figures);
    out.push('\n');
    out
}

/// Points (value, % of the values that are not above it).
fn shares(mut values: Vec<f64>) -> Vec<(f64, f64)> {
    values.sort_unstable_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return Vec::new() };
    let steps = STEPS.min(last.max(1));
    let at = |step: usize| last * step / steps;
    (0..=steps).map(|step| (values[at(step)], (at(step) + 1) as f64 * 100.0 / values.len() as f64)).collect()
}

/// Points (seconds since the run began, % of the prompt tokens cached in that piece of time).
fn cached(one: &Figures) -> Vec<(f64, f64)> {
    let end = one.points.iter().map(|point| point.ended).fold(0.0, f64::max);
    let piece = (end / PIECES as f64).max(1e-3);
    let mut sums = vec![(0u64, 0u64); PIECES + 1];
    for point in &one.points {
        let sum = &mut sums[((point.ended / piece) as usize).min(PIECES)];
        sum.0 += point.cached;
        sum.1 += point.prompt;
    }
    let some = sums.into_iter().enumerate().filter(|(_, (_, prompt))| *prompt > 0);
    some.map(|(number, (cached, prompt))| {
        ((number as f64 + 0.5) * piece, cached as f64 * 100.0 / prompt as f64)
    })
    .collect()
}

/// The sum of `of` over each worker's answers, the greatest first, at most [`MOST_BARS`].
fn per_worker(one: &Figures, of: impl Fn(&Point) -> f64) -> Vec<(f64, f64)> {
    let mut sums = std::collections::HashMap::new();
    for point in &one.points {
        if let Some(worker) = &point.worker {
            *sums.entry(&**worker).or_insert(0.0) += of(point);
        }
    }
    let mut sums: Vec<f64> = sums.into_values().collect();
    sums.sort_unstable_by(|a, b| b.total_cmp(a));
    sums.truncate(MOST_BARS);
    sums.into_iter().map(|sum| (0.0, sum)).collect()
}

/// The Markdown table as HTML.
fn rows(out: &mut String, figures: &[Figures]) {
    let text = table(figures);
    let mut notes = Vec::new();
    out.push_str("<table>");
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with("| ---")) {
        let Some(cells) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
            notes.push(escape(line));
            continue;
        };
        out.push_str("<tr>");
        for cell in cells.split('|') {
            let _infallible = write!(out, "<td>{}", escape(cell.trim()));
        }
    }
    out.push_str("</table>");
    for note in notes {
        let _infallible = write!(out, "<p>{note}</p>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(ended: f64, first: f64, worker: &str, cached: u64) -> Point {
        Point {
            ended,
            first_token: Some(first),
            between_tokens: None,
            prompt: 100,
            cached,
            worker: Some(worker.into()),
        }
    }

    #[test]
    fn curves_say_what_was_measured() {
        assert_eq!(shares(vec![4.0, 1.0, 2.0, 3.0]), [(1.0, 25.0), (2.0, 50.0), (3.0, 75.0), (4.0, 100.0)]);
        assert_eq!(shares(vec![7.0]), [(7.0, 100.0), (7.0, 100.0)]);
        let many = shares((0..10_000).map(f64::from).collect());
        assert_eq!((many.len(), many[STEPS / 2].0), (STEPS + 1, 4999.0));
    }

    #[test]
    fn workers_and_shares_are_counted() {
        let points = vec![point(1.0, 5.0, "a", 0), point(1.1, 5.0, "b", 50), point(60.0, 5.0, "b", 90)];
        let one = Figures { points, ..Figures::default() };
        assert_eq!(per_worker(&one, |_| 1.0), [(0.0, 2.0), (0.0, 1.0)]);
        let shares = cached(&one);
        assert_eq!((shares[0].1, shares.last().map(|last| last.1)), (25.0, Some(90.0)));
    }

    #[test]
    fn names_are_text_and_what_is_missing_is_said() {
        let points = vec![point(1.0, 5.0, "a", 0), point(2.0, 50.0, "a", 10)];
        let text = page(&[Figures { name: "<b>&".into(), points, ..Figures::default() }]);
        assert!(!text.contains("<b>") && text.contains("&lt;b&gt;&amp;"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert_eq!(
            text.matches("Not told by the endpoints").count(),
            1,
            "ITL of answers of one token: {text}"
        );
        assert!(page(&[]).contains("<h1>"));
    }
}
