//! What is aimed at.

use std::collections::BTreeMap;
use std::fmt;

use super::shown;

/// A limit that a number should keep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Aim {
    /// The number.
    pub(crate) name: &'static str,
    /// The limit.
    pub(crate) bound: Bound,
}

/// A limit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    /// No more than this.
    Limit(f64),
    /// No more than so many times another number.
    TimesAtMost(f64, &'static str),
    /// No less than so many times another number.
    TimesAtLeast(f64, &'static str),
}

/// Every aim.
pub(crate) const AIMS: &[Aim] = &[
    aim(
        "attach.kernel.p50_ms",
        Bound::TimesAtMost(1.5, "attach.floor.p50_ms"),
    ),
    aim(
        "attach.kernel.p50_ms",
        Bound::TimesAtMost(1.0, "attach.cni_ptp.p50_ms"),
    ),
    aim("attach.first_ping_ms", Bound::Limit(10.0)),
    // The kernel itself takes longer on a full node, so that the floor is taken there too.
    aim(
        "attach.at_1000.p50_ms",
        Bound::TimesAtMost(1.5, "attach.floor.at_1000.p50_ms"),
    ),
    aim(
        "attach.kernel.at_1000.p50_ms",
        Bound::TimesAtMost(1.5, "attach.floor.at_1000.p50_ms"),
    ),
    aim(
        "attach.vpp.p50_ms",
        Bound::TimesAtMost(1.5, "attach.vpp_floor.p50_ms"),
    ),
    aim("ipam.allocate_ns", Bound::Limit(10_000.0)),
    // An empty book lies in the processor's caches, which no fuller one does. From there on the
    // time must not follow the fill.
    aim("ipam.allocate_ns_fill_50", Bound::Limit(10_000.0)),
    aim(
        "ipam.allocate_ns_fill_99",
        Bound::TimesAtMost(1.5, "ipam.allocate_ns_fill_50"),
    ),
    aim(
        "forward.kernel_gbps",
        Bound::TimesAtLeast(0.95, "forward.veth_floor_gbps"),
    ),
    aim(
        "forward.vpp_clocks",
        Bound::TimesAtMost(1.6, "forward.vpp_floor_clocks"),
    ),
    aim(
        "egress.passthrough_rps",
        Bound::TimesAtLeast(0.9, "egress.direct_rps"),
    ),
    aim(
        "egress.passthrough_body_gbps",
        Bound::TimesAtLeast(0.9, "egress.direct_body_gbps"),
    ),
    aim(
        "egress.inject_body_gbps",
        Bound::TimesAtLeast(1.0, "egress.hudsucker_body_gbps"),
    ),
    aim(
        "egress.inject_cpu_us",
        Bound::TimesAtMost(1.0, "egress.hudsucker_cpu_us"),
    ),
    aim(
        "egress.inject_rps",
        Bound::TimesAtLeast(1.0, "egress.hudsucker_rps"),
    ),
    aim("egress.inject_added_p50_us", Bound::Limit(100.0)),
    aim("policy.decide_ns_10", Bound::Limit(1000.0)),
    aim("policy.decide_ns_100000", Bound::Limit(1000.0)),
    aim(
        "policy.decide_ns_100000",
        Bound::TimesAtMost(2.0, "policy.decide_ns_10"),
    ),
    aim("quarantine.p99_ms", Bound::Limit(1000.0)),
];

const fn aim(name: &'static str, bound: Bound) -> Aim {
    Aim { name, bound }
}

impl Aim {
    /// Whether it is met; none when a number that it needs was not measured.
    pub(crate) fn judge(&self, values: &BTreeMap<String, f64>) -> Option<Verdict> {
        let value = *values.get(self.name)?;
        let (measured, met, wanted) = match self.bound {
            Bound::Limit(limit) => (
                shown(value),
                value <= limit,
                format!("at most {}", shown(limit)),
            ),
            Bound::TimesAtMost(limit, other) => {
                let ratio = value / values.get(other)?;
                (
                    format!("{ratio:.2}"),
                    ratio <= limit,
                    format!("at most {limit} x {other}"),
                )
            }
            Bound::TimesAtLeast(limit, other) => {
                let ratio = value / values.get(other)?;
                (
                    format!("{ratio:.2}"),
                    ratio >= limit,
                    format!("at least {limit} x {other}"),
                )
            }
        };
        Some(Verdict {
            name: self.name,
            measured,
            met,
            wanted,
        })
    }
}

/// An aim beside what was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    name: &'static str,
    measured: String,
    met: bool,
    wanted: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            measured,
            met,
            wanted,
        } = self;
        let word = if *met { "met   " } else { "missed" };
        write!(f, "{word}  {name}: {measured} ({wanted})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(bound: Bound, values: &[(&str, f64)]) -> Option<String> {
        let values = values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect();
        aim("a", bound)
            .judge(&values)
            .map(|verdict| verdict.to_string())
    }

    #[test]
    fn each_kind_of_limit_is_met_and_missed() {
        let cases = [
            (Bound::Limit(10.0), 10.0, "met     a: 10 (at most 10)"),
            (Bound::Limit(10.0), 10.5, "missed  a: 10.5 (at most 10)"),
            (
                Bound::TimesAtMost(1.5, "b"),
                3.0,
                "met     a: 1.50 (at most 1.5 x b)",
            ),
            (
                Bound::TimesAtMost(1.5, "b"),
                4.0,
                "missed  a: 2.00 (at most 1.5 x b)",
            ),
            (
                Bound::TimesAtLeast(0.9, "b"),
                1.8,
                "met     a: 0.90 (at least 0.9 x b)",
            ),
            (
                Bound::TimesAtLeast(0.9, "b"),
                1.0,
                "missed  a: 0.50 (at least 0.9 x b)",
            ),
        ];
        for (bound, value, expected) in cases {
            assert_eq!(
                judged(bound, &[("a", value), ("b", 2.0)]).as_deref(),
                Some(expected)
            );
        }
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        assert_eq!(judged(Bound::Limit(1.0), &[]), None);
        assert_eq!(judged(Bound::TimesAtMost(1.0, "b"), &[("a", 1.0)]), None);
    }
}
