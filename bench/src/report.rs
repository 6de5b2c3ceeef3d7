//! What was measured: the numbers, what could not be had and why, and what is aimed at.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde_json::{Map, Value};

use crate::stats::Samples;

mod aims;

use aims::AIMS;

/// The numbers of one run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    values: BTreeMap<String, f64>,
    missing: Vec<(String, String)>,
    failed: Vec<(String, String)>,
}

impl Report {
    /// Notes a number. Only a finite one is a measurement.
    pub(crate) fn set(&mut self, name: &str, value: f64) {
        if value.is_finite() {
            self.values.insert(name.to_owned(), value);
        } else {
            self.failed
                .push((name.to_owned(), format!("the result is {value}")));
        }
    }

    /// Notes the median of `samples`.
    pub(crate) fn set_median(&mut self, name: &str, samples: &Samples) {
        self.set_or_fail(name, samples.median());
    }

    /// Notes a percentile of `samples`.
    pub(crate) fn set_percentile(&mut self, name: &str, samples: &Samples, percent: f64) {
        self.set_or_fail(name, samples.percentile(percent));
    }

    /// Notes that `name` cannot be had on this machine: no number is made up for it.
    pub(crate) fn missing(&mut self, name: &str, why: impl fmt::Display) {
        self.missing.push((name.to_owned(), why.to_string()));
    }

    /// Notes that measuring `name` went wrong.
    pub(crate) fn failed(&mut self, name: &str, error: &anyhow::Error) {
        self.failed.push((name.to_owned(), format!("{error:#}")));
    }

    /// Whether everything that this machine can measure was measured.
    pub(crate) fn is_complete(&self) -> bool {
        self.failed.is_empty()
    }

    /// One flat object of name to number.
    pub(crate) fn to_json(&self) -> Value {
        let number = |(name, value): (&String, &f64)| (name.clone(), Value::from(rounded(*value)));
        Value::Object(self.values.iter().map(number).collect::<Map<_, _>>())
    }

    fn set_or_fail(&mut self, name: &str, value: Option<f64>) {
        match value {
            Some(value) => self.set(name, value),
            None => self
                .failed
                .push((name.to_owned(), "nothing was measured".to_owned())),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.values.keys().map(String::len).max().unwrap_or(0);
        for (name, value) in &self.values {
            writeln!(f, "{name:width$}  {}", shown(*value))?;
        }
        let verdicts: Vec<_> = AIMS
            .iter()
            .filter_map(|aim| aim.judge(&self.values))
            .collect();
        if !verdicts.is_empty() {
            writeln!(f, "\nAims:")?;
        }
        for verdict in verdicts {
            writeln!(f, "  {verdict}")?;
        }
        for (title, list) in [
            ("Not to be had here:", &self.missing),
            ("Went wrong:", &self.failed),
        ] {
            if !list.is_empty() {
                writeln!(f, "\n{title}")?;
            }
            for (name, why) in list {
                writeln!(f, "  {name}: {why}")?;
            }
        }
        Ok(())
    }
}

/// Four significant digits, or the whole number where that has more.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || value.abs() >= 1000.0 {
        return value.round();
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a number of digits between -308 and 3"
    )]
    let digits = 3 - value.abs().log10().floor() as i32;
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

/// The same, for people: thousands are set apart.
fn shown(value: f64) -> String {
    let value = rounded(value);
    if value.abs() < 1000.0 {
        return value.to_string();
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = if value < 0.0 {
        "-".to_owned()
    } else {
        String::new()
    };
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        let _infallible = text.write_char(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_one_flat_object_of_numbers() {
        let mut report = Report::default();
        report.set("b.rps", 12_345.678);
        report.set("a.p50_ms", 1.234_567);
        report.missing("c.rps", "not installed");
        assert_eq!(
            report.to_json().to_string(),
            r#"{"a.p50_ms":1.235,"b.rps":12346.0}"#
        );
        assert!(report.is_complete());
    }

    #[test]
    fn what_is_no_number_is_a_failure_and_not_a_number() {
        let mut report = Report::default();
        report.set("a.rps", f64::NAN);
        report.set_median("b.p50_ms", &Samples::default());
        assert_eq!(report.to_json().to_string(), "{}");
        assert!(!report.is_complete());
        let text = report.to_string();
        assert!(text.contains("a.rps: the result is NaN"), "{text}");
        assert!(text.contains("b.p50_ms: nothing was measured"), "{text}");
    }

    #[test]
    fn missing_peers_are_named_with_the_reason() {
        let mut report = Report::default();
        report.missing("attach.cni_ptp.p50_ms", "/usr/lib/cni/ptp is not there");
        let text = report.to_string();
        assert!(
            text.contains("attach.cni_ptp.p50_ms: /usr/lib/cni/ptp is not there"),
            "{text}"
        );
    }

    #[test]
    fn numbers_keep_four_digits() {
        for (value, expected) in [
            (0.0, "0"),
            (0.012_345_6, "0.01235"),
            (1.0, "1"),
            (999.94, "999.9"),
            (1000.0, "1,000"),
            (1_234_567.8, "1,234,568"),
            (-12_345.0, "-12,345"),
        ] {
            assert_eq!(shown(value), expected);
        }
    }
}
