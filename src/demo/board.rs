//! The table of checks: each claim stands beside its control.

use std::fmt::Write as _;
use std::io::{self, Write};

/// What a probe found: evidence for its claim, or the failure.
pub(crate) type Probe = anyhow::Result<String>;

struct Row {
    claim: String,
    passed: bool,
    details: [String; 2],
}

/// Collects checks and prints them.
pub(crate) struct Board<W> {
    out: W,
    rows: Vec<Row>,
    step: usize,
}

impl<W: Write> Board<W> {
    pub(crate) fn new(out: W) -> Self {
        Self {
            out,
            rows: Vec::new(),
            step: 0,
        }
    }

    /// Says what happens next.
    pub(crate) fn step(&mut self, text: &str) -> io::Result<()> {
        self.step += 1;
        writeln!(self.out, "\n[{}] {text}", self.step)?;
        self.out.flush()
    }

    /// Shows a line below the present step.
    pub(crate) fn note(&mut self, text: &str) -> io::Result<()> {
        for line in text.trim_end().lines() {
            writeln!(self.out, "    {line}")?;
        }
        self.out.flush()
    }

    /// One check: something that has to work, and its control that has to be refused. Both
    /// probes return evidence when they found what they should.
    pub(crate) fn check(&mut self, claim: &str, works: Probe, refused: Probe) -> io::Result<()> {
        let passed = works.is_ok() && refused.is_ok();
        let details = [works, refused].map(|probe| match probe {
            Ok(evidence) => first_line(&evidence),
            Err(error) => format!("FAILED: {}", first_line(&format!("{error:#}"))),
        });
        self.note(&format!("{} {claim}", if passed { "ok  " } else { "FAIL" }))?;
        self.rows.push(Row {
            claim: claim.to_owned(),
            passed,
            details,
        });
        Ok(())
    }

    /// Prints the table and the last line; returns whether everything passed.
    pub(crate) fn finish(mut self) -> io::Result<bool> {
        let mut text = String::from("\n");
        for row in &self.rows {
            let mark = if row.passed { "ok  " } else { "FAIL" };
            let [works, refused] = &row.details;
            let _infallible = writeln!(text, "{mark} {}", row.claim);
            let _infallible = writeln!(text, "       does:     {works}");
            let _infallible = writeln!(text, "       does not: {refused}");
        }
        let passed = self.rows.iter().filter(|row| row.passed).count();
        let _infallible = writeln!(text, "\ndemo: {} checks, {passed} passed", self.rows.len());
        self.out.write_all(text.as_bytes())?;
        self.out.flush()?;
        Ok(passed == self.rows.len() && passed > 0)
    }
}

fn first_line(text: &str) -> String {
    const WIDTH: usize = 150;
    let line = text.trim().lines().collect::<Vec<_>>().join(" / ");
    if line.chars().count() <= WIDTH {
        return line;
    }
    line.chars().take(WIDTH).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_check_passes_only_with_its_control() {
        let text = |works: Probe, refused: Probe| {
            let mut out = Vec::new();
            let mut board = Board::new(&mut out);
            board.check("claim", works, refused).unwrap();
            let passed = board.finish().unwrap();
            (passed, String::from_utf8(out).unwrap())
        };
        let (passed, shown) = text(Ok("yes".into()), Ok("no".into()));
        assert!(passed);
        assert!(shown.ends_with("demo: 1 checks, 1 passed\n"), "{shown}");
        let (passed, shown) = text(Ok("yes".into()), Err(anyhow!("it got through")));
        assert!(!passed);
        assert!(shown.contains("FAILED: it got through"), "{shown}");
        assert!(!text(Err(anyhow!("dead")), Ok("no".into())).0);
    }

    #[test]
    fn no_checks_at_all_is_a_failure() {
        assert!(!Board::new(Vec::new()).finish().unwrap());
    }
}
