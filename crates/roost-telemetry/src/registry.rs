//! Metric families: registration under the right prefix, and the text format.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus::{
    Encoder as _, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, TextEncoder, core::Collector,
};

use crate::{Error, Federation};

/// Prefix of the frontend's families unless another is chosen.
const DEFAULT_PREFIX: &str = "dynamo_frontend";

/// Name of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// A family of the frontend, under the prefix the operator may choose.
    Frontend(&'static str),
    /// A family of the frontend that keeps Dynamo's prefix whatever the operator chose, as it does there.
    FixedFrontend(&'static str),
    /// The name as it is.
    Full(&'static str),
}

/// Type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by bucket.
    Histogram,
}

/// What is known of a family: for the reference and for tests.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Full name.
    pub name: String,
    /// Type.
    pub kind: Kind,
    /// What it means.
    pub help: String,
    /// Names of its labels, sorted.
    pub labels: Vec<String>,
    /// Finite upper bounds of a histogram's buckets.
    pub buckets: Vec<f64>,
}

/// All metric families of the process. Clones share them.
#[derive(Debug, Clone)]
pub struct Registry {
    inner: prometheus::Registry,
    prefix: Arc<str>,
    families: Arc<Mutex<BTreeMap<String, Family>>>,
    federation: Option<Federation>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new(DEFAULT_PREFIX)
    }
}

impl Registry {
    /// The media type of [`Self::encode`].
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// An empty registry. Characters of `prefix` that a metric name cannot have become `_`.
    pub fn new(prefix: &str) -> Self {
        let valid = |(index, character): (usize, char)| {
            let is_valid = character.is_ascii_alphabetic()
                || matches!(character, '_' | ':')
                || (index > 0 && character.is_ascii_digit());
            if is_valid { character } else { '_' }
        };
        Self {
            inner: prometheus::Registry::new(),
            prefix: prefix.trim_end_matches('_').chars().enumerate().map(valid).collect::<String>().into(),
            families: Arc::default(),
            federation: None,
        }
    }

    /// The name under which a family is exported.
    pub fn full_name(&self, name: Name) -> String {
        match name {
            Name::Frontend(name) => format!("{}_{name}", self.prefix),
            Name::FixedFrontend(name) => format!("{DEFAULT_PREFIX}_{name}"),
            Name::Full(name) => name.to_owned(),
        }
    }

    /// Registers a counter without labels.
    ///
    /// # Errors
    /// If the name is taken or not valid; so for all of these functions.
    pub fn counter(&self, name: Name, help: &str) -> Result<IntCounter, Error> {
        self.register(name, help, Kind::Counter, &[], &[], |name| {
            IntCounter::with_opts(Opts::new(name, help))
        })
    }

    /// Registers a counter with labels.
    ///
    /// # Errors
    /// See [`Self::counter`].
    pub fn counter_vec(&self, name: Name, help: &str, labels: &[&str]) -> Result<IntCounterVec, Error> {
        self.register(name, help, Kind::Counter, labels, &[], |name| {
            IntCounterVec::new(Opts::new(name, help), labels)
        })
    }

    /// Registers a gauge of whole numbers.
    ///
    /// # Errors
    /// See [`Self::counter`].
    pub fn gauge(&self, name: Name, help: &str) -> Result<IntGauge, Error> {
        self.register(name, help, Kind::Gauge, &[], &[], |name| IntGauge::with_opts(Opts::new(name, help)))
    }

    /// Registers a gauge of whole numbers with labels.
    ///
    /// # Errors
    /// See [`Self::counter`].
    pub fn gauge_vec(&self, name: Name, help: &str, labels: &[&str]) -> Result<IntGaugeVec, Error> {
        self.register(name, help, Kind::Gauge, labels, &[], |name| {
            IntGaugeVec::new(Opts::new(name, help), labels)
        })
    }

    /// Registers a gauge of fractions.
    ///
    /// # Errors
    /// See [`Self::counter`].
    pub fn float_gauge(&self, name: Name, help: &str) -> Result<Gauge, Error> {
        self.register(name, help, Kind::Gauge, &[], &[], |name| Gauge::with_opts(Opts::new(name, help)))
    }

    /// Registers a gauge of fractions with labels.
    ///
    /// # Errors
    /// See [`Self::counter`].
    pub fn float_gauge_vec(&self, name: Name, help: &str, labels: &[&str]) -> Result<GaugeVec, Error> {
        self.register(name, help, Kind::Gauge, labels, &[], |name| {
            GaugeVec::new(Opts::new(name, help), labels)
        })
    }

    /// Registers a histogram with these finite bounds.
    ///
    /// # Errors
    /// See [`Self::counter`].
    pub fn histogram(&self, name: Name, help: &str, buckets: &[f64]) -> Result<Histogram, Error> {
        self.register(name, help, Kind::Histogram, &[], buckets, |name| {
            Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))
        })
    }

    /// Registers a histogram with these finite bounds and with labels.
    ///
    /// # Errors
    /// See [`Self::counter`].
    pub fn histogram_vec(
        &self,
        name: Name,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec, Error> {
        self.register(name, help, Kind::Histogram, labels, buckets, |name| {
            HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)
        })
    }

    /// Registers `roost_build_info`, which is 1 and carries the version as a label.
    ///
    /// # Errors
    /// See [`Self::counter`].
    pub fn build_info(&self, version: &str) -> Result<(), Error> {
        let help = "1; the label tells which build this is.";
        self.gauge_vec(Name::Full("roost_build_info"), help, &["version"])?
            .with_label_values(&[version])
            .set(1);
        Ok(())
    }

    /// Shows the pages of other processes behind our own families. For this handle and its later clones.
    pub fn federate(&mut self, federation: Federation) {
        self.federation = Some(federation);
    }

    /// Appends every family that has a series, in the text format 0.0.4.
    pub fn encode_into(&self, buffer: &mut Vec<u8>) {
        let families = self.inner.gather();
        TextEncoder::new()
            .encode(&families, buffer)
            .expect("a vector takes every byte and every family has a name");
        if let Some(federation) = &self.federation {
            federation.encode_into(buffer);
        }
    }

    /// Every family that has a series, in the text format 0.0.4.
    pub fn encode(&self) -> Vec<u8> {
        let mut buffer = Vec::with_capacity(64 << 10);
        self.encode_into(&mut buffer);
        buffer
    }

    /// Every registered family, also those that have no series yet, by name.
    pub fn families(&self) -> Vec<Family> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Number of series, a histogram counted once.
    pub fn series(&self) -> usize {
        self.inner.gather().iter().map(|family| family.get_metric().len()).sum()
    }

    fn register<C: Collector + Clone + 'static>(
        &self,
        name: Name,
        help: &str,
        kind: Kind,
        labels: &[&str],
        buckets: &[f64],
        make: impl FnOnce(&str) -> prometheus::Result<C>,
    ) -> Result<C, Error> {
        let name = self.full_name(name);
        let made = make(&name).and_then(|family| {
            self.inner.register(Box::new(family.clone()))?;
            Ok(family)
        });
        let made = made.map_err(|source| Error::Register { name: name.clone(), source })?;
        let mut labels: Vec<String> = labels.iter().map(ToString::to_string).collect();
        labels.sort_unstable();
        let family =
            Family { name: name.clone(), kind, help: help.to_owned(), labels, buckets: buckets.to_vec() };
        self.families.lock().unwrap_or_else(PoisonError::into_inner).insert(name, family);
        Ok(made)
    }
}

impl Kind {
    /// The word for it in the text format.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(registry: &Registry) -> String {
        String::from_utf8(registry.encode()).expect("the format is text")
    }

    #[test]
    fn families_under_the_prefix_follow_it_and_others_do_not() -> Result<(), Error> {
        let registry = Registry::new("my-front.end 2");
        registry.counter(Name::Frontend("requests_total"), "Requests.")?.inc();
        registry.gauge(Name::FixedFrontend("stage_requests"), "Requests in a stage.")?.set(3);
        registry.float_gauge(Name::Full("roost_load"), "Load.")?.set(0.5);
        assert_eq!(
            text(&registry),
            "# HELP dynamo_frontend_stage_requests Requests in a stage.\n\
             # TYPE dynamo_frontend_stage_requests gauge\n\
             dynamo_frontend_stage_requests 3\n\
             # HELP my_front_end_2_requests_total Requests.\n\
             # TYPE my_front_end_2_requests_total counter\n\
             my_front_end_2_requests_total 1\n\
             # HELP roost_load Load.\n\
             # TYPE roost_load gauge\n\
             roost_load 0.5\n"
        );
        assert_eq!(Registry::new("2x").full_name(Name::Frontend("a")), "_x_a");
        Ok(())
    }

    #[test]
    fn a_histogram_is_written_with_all_its_buckets() -> Result<(), Error> {
        let registry = Registry::default();
        let family = registry.histogram_vec(
            Name::Frontend("wait_seconds"),
            "Wait.",
            &["model"],
            &[0.0, 0.0047, 2.0],
        )?;
        family.with_label_values(&["a\"b\n"]).observe(0.001);
        assert_eq!(
            text(&registry),
            "# HELP dynamo_frontend_wait_seconds Wait.\n\
             # TYPE dynamo_frontend_wait_seconds histogram\n\
             dynamo_frontend_wait_seconds_bucket{model=\"a\\\"b\\n\",le=\"0\"} 0\n\
             dynamo_frontend_wait_seconds_bucket{model=\"a\\\"b\\n\",le=\"0.0047\"} 1\n\
             dynamo_frontend_wait_seconds_bucket{model=\"a\\\"b\\n\",le=\"2\"} 1\n\
             dynamo_frontend_wait_seconds_bucket{model=\"a\\\"b\\n\",le=\"+Inf\"} 1\n\
             dynamo_frontend_wait_seconds_sum{model=\"a\\\"b\\n\"} 0.001\n\
             dynamo_frontend_wait_seconds_count{model=\"a\\\"b\\n\"} 1\n"
        );
        Ok(())
    }

    #[test]
    fn a_name_is_registered_once() -> Result<(), Error> {
        let registry = Registry::default();
        registry.counter(Name::Frontend("x_total"), "X.")?;
        let error = registry.gauge(Name::FixedFrontend("x_total"), "X.").expect_err("the name is taken");
        assert_eq!(error.to_string(), "cannot register metric family dynamo_frontend_x_total");
        Ok(())
    }

    #[test]
    fn what_is_registered_is_known_before_it_has_a_series() -> Result<(), Error> {
        let registry = Registry::default();
        registry.counter_vec(Name::Full("a_total"), "A.", &["z", "b"])?;
        registry.build_info("1.2.3")?;
        assert_eq!(registry.series(), 1);
        assert!(text(&registry).contains("roost_build_info{version=\"1.2.3\"} 1\n"));
        let [first, _] = registry.families().try_into().expect("two families");
        assert_eq!((first.name.as_str(), first.kind.as_str()), ("a_total", "counter"));
        assert_eq!(first.labels, ["b", "z"]);
        Ok(())
    }
}
