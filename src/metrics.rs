//! Measurements as Prometheus text (exposition format 0.0.4).

use std::fmt::{Display, Write};

use causeway_egress::control::Stats;

use crate::agent::Measurements;

/// Writes every measurement. Labels are names that were checked, so none needs escaping.
pub(crate) fn render(measured: &Measurements) -> String {
    let mut page = Page::default();
    node(&mut page, measured);
    traffic(&mut page, measured);
    egress(&mut page, measured);
    page.text
}

fn node(page: &mut Page, measured: &Measurements) {
    page.head(
        "causeway_generation",
        "gauge",
        "Generation of the desired state.",
    );
    page.value("causeway_generation", measured.generation);
    page.head(
        "causeway_uptime_seconds",
        "gauge",
        "Seconds since the agent started.",
    );
    page.value("causeway_uptime_seconds", measured.uptime_seconds);
    page.head(
        "causeway_problems",
        "gauge",
        "Problems that `causeway status` shows.",
    );
    page.value("causeway_problems", measured.problems);
    let counts = measured.counts;
    page.head("causeway_objects", "gauge", "What the node holds, by kind.");
    for (kind, count) in [
        ("tenant", counts.tenants),
        ("sandbox", counts.sandboxes),
        ("sandbox_quarantined", counts.quarantined),
        ("network", counts.networks),
        ("policy", counts.policies),
        ("guardrail", counts.guardrails),
        ("secret", counts.secrets),
    ] {
        page.labelled("causeway_objects", &[("kind", &kind)], count);
    }
    page.head("causeway_leases", "gauge", "Leases, by state.");
    for (state, count) in &measured.leases {
        page.labelled("causeway_leases", &[("state", state)], count);
    }
}

fn traffic(page: &mut Page, measured: &Measurements) {
    let named = || {
        measured
            .dataplane
            .sandboxes
            .iter()
            .filter_map(|(uid, counters)| Some((measured.names.get(uid)?, counters)))
    };
    page.head(
        "causeway_sandbox_packets_total",
        "counter",
        "Packets, by sandbox and direction.",
    );
    for (id, port) in named() {
        for (direction, count) in [("out", port.sent_packets), ("in", port.received_packets)] {
            let labels: Labels<'_> = &[
                ("tenant", &id.tenant),
                ("sandbox", &id.name),
                ("direction", &direction),
            ];
            page.labelled("causeway_sandbox_packets_total", labels, count);
        }
    }
    page.head(
        "causeway_sandbox_bytes_total",
        "counter",
        "Bytes, by sandbox and direction.",
    );
    for (id, port) in named() {
        for (direction, count) in [("out", port.sent_bytes), ("in", port.received_bytes)] {
            let labels: Labels<'_> = &[
                ("tenant", &id.tenant),
                ("sandbox", &id.name),
                ("direction", &direction),
            ];
            page.labelled("causeway_sandbox_bytes_total", labels, count);
        }
    }
    page.head(
        "causeway_sandbox_drops_total",
        "counter",
        "Packets that the dataplane dropped, by sandbox and reason.",
    );
    for (id, port) in named() {
        for (reason, count) in &port.drops {
            let labels: Labels<'_> = &[
                ("tenant", &id.tenant),
                ("sandbox", &id.name),
                ("reason", reason),
            ];
            page.labelled("causeway_sandbox_drops_total", labels, count);
        }
    }
    page.head(
        "causeway_other_drops_total",
        "counter",
        "Packets dropped on the uplink and on interfaces of no sandbox, by reason.",
    );
    for (reason, count) in &measured.dataplane.other_drops {
        page.labelled("causeway_other_drops_total", &[("reason", reason)], count);
    }
}

fn egress(page: &mut Page, measured: &Measurements) {
    let up = u8::from(measured.proxy.state == "running");
    page.head(
        "causeway_proxy_up",
        "gauge",
        "Whether the egress proxy is running.",
    );
    page.value("causeway_proxy_up", up);
    page.head(
        "causeway_proxy_starts_total",
        "counter",
        "Starts of the egress proxy by this agent.",
    );
    page.value("causeway_proxy_starts_total", measured.proxy.starts);
    if let Some(stats) = &measured.egress {
        proxy_counters(page, stats);
    }
}

fn proxy_counters(page: &mut Page, stats: &Stats) {
    page.head(
        "causeway_egress_decisions_total",
        "counter",
        "Decisions of the egress proxy, by protocol and outcome.",
    );
    for decided in &stats.decisions_total {
        let labels: Labels<'_> = &[
            ("protocol", &decided.protocol.as_str()),
            ("decision", &decided.decision.as_str()),
        ];
        page.labelled("causeway_egress_decisions_total", labels, decided.count);
    }
    for (name, kind, help, value) in [
        (
            "generation",
            "gauge",
            "Generation that the proxy has in effect.",
            stats.generation.0,
        ),
        (
            "connections",
            "gauge",
            "Connections open.",
            stats.connections_live,
        ),
        (
            "connections_total",
            "counter",
            "Connections.",
            stats.connections_total,
        ),
        (
            "requests_total",
            "counter",
            "HTTP requests forwarded.",
            stats.requests_total,
        ),
        (
            "dns_queries_total",
            "counter",
            "Name queries.",
            stats.dns_queries_total,
        ),
        (
            "bytes_out_total",
            "counter",
            "Bytes from sandboxes.",
            stats.bytes_out_total,
        ),
        (
            "bytes_in_total",
            "counter",
            "Bytes to sandboxes.",
            stats.bytes_in_total,
        ),
        (
            "revoked_total",
            "counter",
            "Live flows cut.",
            stats.revoked_total,
        ),
        (
            "audit_dropped_total",
            "counter",
            "Audit records lost.",
            stats.audit_dropped_total,
        ),
        (
            "events_dropped_total",
            "counter",
            "Events not sent.",
            stats.events_dropped_total,
        ),
    ] {
        let name = format!("causeway_egress_{name}");
        page.head(&name, kind, help);
        page.value(&name, value);
    }
    secret_counters(page, stats);
    page.head(
        "causeway_egress_refused_total",
        "counter",
        "Refusals of the proxy, by reason.",
    );
    for (reason, count) in &stats.refused_total {
        page.labelled(
            "causeway_egress_refused_total",
            &[("reason", reason)],
            count,
        );
    }
}

/// What happened to secrets.
fn secret_counters(page: &mut Page, stats: &Stats) {
    for (name, help, value) in [
        ("injections_total", "Secrets added.", stats.injections_total),
        (
            "replacements_total",
            "Placeholders swapped.",
            stats.replacements_total,
        ),
        (
            "redactions_total",
            "Answers that a secret was taken out of.",
            stats.redactions_total,
        ),
    ] {
        let name = format!("causeway_egress_{name}");
        page.head(&name, "counter", help);
        page.value(&name, value);
    }
}

type Labels<'a> = &'a [(&'a str, &'a dyn Display)];

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn value(&mut self, name: &str, value: impl Display) {
        self.line(format_args!("{name} {value}"));
    }

    fn labelled(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(key, value)| format!("{key}=\"{value}\""))
            .collect();
        self.line(format_args!("{name}{{{}}} {value}", labels.join(",")));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{line}");
    }
}
