//! Families of other processes on our page, under their own names, each series with the process it is of.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

/// Largest page that is taken over.
pub const MAX_PAGE_BYTES: usize = 4 << 20;
/// Most series of one process.
pub const MAX_SERIES: usize = 20_000;

/// The last pages of a fixed set of processes. Clones share them.
#[derive(Debug, Clone)]
pub struct Federation {
    prefix: &'static str,
    pages: Arc<[Source]>,
}

#[derive(Debug)]
struct Source {
    /// Value of the label `worker`.
    worker: String,
    page: Mutex<Option<Page>>,
}

/// The families of one page, by name.
type Page = BTreeMap<String, Family>;

#[derive(Debug, Default, PartialEq, Eq)]
struct Family {
    /// `# HELP` and `# TYPE`.
    head: String,
    series: String,
}

/// Why a page is not taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is longer than [`MAX_PAGE_BYTES`].
    #[error("more than {MAX_PAGE_BYTES} bytes")]
    Bytes,
    /// It has more series than [`MAX_SERIES`].
    #[error("more than {MAX_SERIES} series")]
    Series,
}

impl Federation {
    /// For these processes, by their names in the label `worker`; of their pages the families whose names begin with
    /// `prefix` are shown.
    pub fn new(prefix: &'static str, workers: impl IntoIterator<Item = String>) -> Self {
        let source = |worker| Source { worker, page: Mutex::new(None) };
        Federation { prefix, pages: workers.into_iter().map(source).collect() }
    }

    /// Takes the present page of a process, or forgets the last one (`None`), which says nothing any more.
    ///
    /// # Errors
    /// It is too large; the last one is forgotten then, too.
    pub fn put(&self, number: usize, page: Option<&str>) -> Result<(), Refused> {
        let Some(source) = self.pages.get(number) else { return Ok(()) };
        let read = page.map(|page| read(page, self.prefix, &source.worker)).transpose();
        let (page, result) = match read {
            Ok(page) => (page, Ok(())),
            Err(refused) => (None, Err(refused)),
        };
        *source.page.lock().unwrap_or_else(PoisonError::into_inner) = page;
        result
    }

    /// Appends all pages as one: each family once, with the series of all processes.
    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        let pages: Vec<_> = self
            .pages
            .iter()
            .map(|source| source.page.lock().unwrap_or_else(PoisonError::into_inner))
            .collect();
        let mut families: BTreeMap<&str, Vec<&Family>> = BTreeMap::new();
        for (name, family) in pages.iter().filter_map(|page| page.as_ref()).flatten() {
            families.entry(name).or_default().push(family);
        }
        for family in families.values() {
            out.extend_from_slice(family[0].head.as_bytes());
            family.iter().for_each(|family| out.extend_from_slice(family.series.as_bytes()));
        }
    }
}

fn read(text: &str, prefix: &str, worker: &str) -> Result<Page, Refused> {
    if text.len() > MAX_PAGE_BYTES {
        return Err(Refused::Bytes);
    }
    let worker = worker.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let mut page = Page::new();
    let mut series = 0;
    // The series of a histogram have longer names than their family, which has been told before them.
    let mut family = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE ")) {
            rest.split(' ').next().unwrap_or_default().clone_into(&mut family);
            if family.starts_with(prefix) {
                let head = &mut page.entry(family.clone()).or_default().head;
                head.push_str(line);
                head.push('\n');
            }
            continue;
        }
        let Some(name) = line.split(['{', ' ']).next().filter(|name| name.starts_with(prefix)) else {
            continue;
        };
        let rest = &line[name.len()..];
        if rest.contains("worker=\"") {
            continue;
        }
        series += 1;
        if series > MAX_SERIES {
            return Err(Refused::Series);
        }
        let owner = if name.starts_with(&family) && !family.is_empty() { &family } else { name };
        let out = &mut page.entry(owner.to_owned()).or_default().series;
        let written = match rest.strip_prefix('{') {
            Some(labels) if labels.starts_with('}') => writeln!(out, "{name}{{worker=\"{worker}\"{labels}"),
            Some(labels) => writeln!(out, "{name}{{worker=\"{worker}\",{labels}"),
            None => writeln!(out, "{name}{{worker=\"{worker}\"}}{rest}"),
        };
        written.expect("a string takes everything");
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP sglang:wait Wait.\n# TYPE sglang:wait histogram\nsglang:wait_bucket{le=\"1\"} 2\n\
                        sglang:wait_sum 1.5\n# HELP python_info x\n# TYPE python_info gauge\npython_info 1\n\
                        # TYPE sglang:running gauge\nsglang:running{} 3\n";

    fn shown(federation: &Federation) -> String {
        let mut out = Vec::new();
        federation.encode_into(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn families_come_once_with_the_series_of_all() {
        let federation = Federation::new("sglang:", ["a:1".to_owned(), "b\"".to_owned()]);
        assert_eq!(shown(&federation), "");
        federation.put(0, Some(PAGE)).unwrap();
        federation.put(1, Some("# TYPE sglang:running gauge\nsglang:running{m=\"x\"} 4\n")).unwrap();
        assert_eq!(
            shown(&federation),
            "# TYPE sglang:running gauge\nsglang:running{worker=\"a:1\"} 3\nsglang:running{worker=\"b\\\"\",m=\"x\"} 4\n\
             # HELP sglang:wait Wait.\n# TYPE sglang:wait histogram\nsglang:wait_bucket{worker=\"a:1\",le=\"1\"} 2\n\
             sglang:wait_sum{worker=\"a:1\"} 1.5\n"
        );
        federation.put(0, None).unwrap();
        assert_eq!(shown(&federation).lines().count(), 2, "what is away says nothing");
    }

    #[test]
    fn a_captured_page_is_taken_over_whole() {
        let path = format!("{}/../../tests/fixtures/sglang/agg.metrics.http", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let lines = |text: &str| text.lines().filter(|line| line.starts_with("sglang:")).count();
        let federation = Federation::new("sglang:", ["w".to_owned()]);
        federation.put(0, Some(&text)).unwrap();
        assert!(lines(&text) > 5);
        assert_eq!(lines(&shown(&federation)), lines(&text));
    }

    #[test]
    fn pages_have_limits() {
        let federation = Federation::new("s:", ["w".to_owned()]);
        let many = "s:x 1\n".repeat(MAX_SERIES + 1);
        federation.put(0, Some("s:x 1\n")).unwrap();
        assert_eq!(federation.put(0, Some(&many)), Err(Refused::Series));
        assert_eq!(shown(&federation), "", "nor is what it said before");
        assert_eq!(federation.put(0, Some(&"#".repeat(MAX_PAGE_BYTES + 1))), Err(Refused::Bytes));
    }
}
