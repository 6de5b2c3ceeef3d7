//! Writing the structure, and finding out whether it has to be written.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use super::message::{self, Family};
use super::ruleset::{Ruleset, TABLE};
use super::set::{Entry, Set};
use super::{Filter, NftError};

/// Longest part of `nft`'s complaints that is shown.
const MESSAGE: usize = 2000;

/// What [`Filter::install`] found to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Installed {
    /// There was no structure: it was written.
    Written,
    /// It is the one that this ruleset describes: it was left alone.
    Unchanged,
    /// There was another one: it was replaced, and the elements were kept.
    Replaced,
}

impl Filter {
    /// Whether the structure that is there is the one that this ruleset describes.
    pub fn is_current(&mut self, ruleset: &Ruleset) -> Result<bool, NftError> {
        Ok(self.comment()?.as_deref() == Some(ruleset.digest().as_str()))
    }

    /// Makes sure of the structure. One that is as it should be is left alone, with elements,
    /// counters and flows. Another one is replaced in one transaction, together with those
    /// elements that fit into the new one: a packet meets either the old rules or the new ones.
    ///
    /// Must be called on a thread in the router's namespace: it runs `nft`.
    pub fn install(&mut self, ruleset: &Ruleset) -> Result<Installed, NftError> {
        let comment = self.comment()?;
        if comment.as_deref() == Some(ruleset.digest().as_str()) {
            return Ok(Installed::Unchanged);
        }
        let mut text = String::new();
        for family in ["inet", "arp"] {
            // Deleting what is not there would fail; adding what is there does not.
            // Writing to a string cannot fail.
            let _ = writeln!(text, "add table {family} {TABLE}");
            let _ = writeln!(text, "delete table {family} {TABLE}");
        }
        text.push_str(&ruleset.text());
        if comment.is_some() {
            self.carry(&mut text)?;
        }
        run(&text)?;
        Ok(match comment {
            None => Installed::Written,
            Some(_) => Installed::Replaced,
        })
    }

    /// Removes the tables. None there is success.
    pub fn remove(&mut self) -> Result<(), NftError> {
        for family in [Family::Inet, Family::Arp] {
            let batch = message::encode_delete_table(family);
            for (_, errno) in self.exchange(&batch, 1)? {
                if errno != libc::ENOENT {
                    return Err(NftError::request("delete a table", errno));
                }
            }
        }
        Ok(())
    }

    /// The comment of the table; empty where it has none, and none where there is no table.
    fn comment(&mut self) -> Result<Option<String>, NftError> {
        let mut comment = None;
        let request = message::encode_get_table(Family::Inet, self.next_sequence());
        match self.request("read the table", &request, |payload| {
            comment = message::decode_table_comment(payload)?;
            Ok(())
        }) {
            Ok(_) => Ok(Some(comment.unwrap_or_default())),
            Err(NftError::Missing) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes down what is in the sets that the old structure and the new one have in common.
    fn carry(&mut self, text: &mut String) -> Result<(), NftError> {
        for &set in Set::ALL {
            let mut fits = false;
            let request = message::encode_get_set(set, self.next_sequence());
            match self.request("read a set", &request, |payload| {
                fits = message::decode_set_fits(payload, set)?;
                Ok(())
            }) {
                Ok(_) | Err(NftError::Missing) => (),
                Err(error) => return Err(error),
            }
            if !fits {
                continue;
            }
            let raw = self.dump(Family::Inet, set)?;
            let counters: Vec<_> = raw.iter().map(|element| element.counter).collect();
            let entries = message::entries(set, raw)?;
            write_elements(text, &entries, &counters);
        }
        Ok(())
    }
}

fn write_elements(text: &mut String, entries: &[Entry], counters: &[Option<(u64, u64)>]) {
    let Some(first) = entries.first() else {
        return;
    };
    // Writing to a string cannot fail.
    let _ = write!(text, "add element inet {TABLE} {} {{ ", first.set.name());
    for (position, entry) in entries.iter().enumerate() {
        text.push_str(&entry.text());
        // Only the set of drops has counters, and there each element is one entry.
        if let Some(Some((packets, bytes))) = counters.get(position) {
            let _ = write!(text, " counter packets {packets} bytes {bytes}");
        }
        text.push_str(", ");
    }
    text.push_str("}\n");
}

/// Runs `nft` on a script.
fn run(script: &str) -> Result<(), NftError> {
    let spawned = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(NftError::NoProgram),
        Err(source) => return Err(NftError::Program { source }),
    };
    // `nft` reads everything before it says anything. If it died, its status says why.
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(script.as_bytes()) {
            Err(source) if source.kind() != io::ErrorKind::BrokenPipe => {
                return Err(NftError::Program { source });
            }
            _ => (),
        }
    }
    let output = child
        .wait_with_output()
        .map_err(|source| NftError::Program { source })?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(NftError::Rules {
        status: output.status,
        message: message.chars().take(MESSAGE).collect(),
    })
}
