//! The secrets of one request: into it on its way out, and never back out of its answer.

mod answer;
mod coding;
mod head;
mod request;
mod sign;

use std::sync::Arc;

use causeway_policy::model::{Format, Place, Slot};
use causeway_policy::{Replacement, RequestPermit};
use causeway_types::{Reason, SandboxUid};
use zeroize::Zeroizing;

use crate::control::SecretValue;
use crate::secrets::{Needles, Redactor, Swaps};
use crate::state::{Secret, Snapshot};

pub(super) use answer::{Guard, Scrubbed};
pub(super) use head::remove_alike;
pub(crate) use request::RequestBody;
pub(super) use request::outgoing;
pub(super) use sign::Unsigned;

/// What goes along with a request.
pub(super) struct Carried {
    injections: Vec<(Slot, Format, Arc<SecretValue>)>,
    header: Swaps,
    query: Swaps,
    path: Swaps,
    body: Swaps,
    /// The keys that requests are signed with.
    signature: Option<Arc<SecretValue>>,
    /// What its answer is searched for.
    needles: Vec<Arc<Needles>>,
    secrets: Vec<Arc<SecretValue>>,
}

impl Carried {
    /// Gathers the secrets of a permit; none when it has none.
    pub(super) fn new(
        snapshot: &Snapshot,
        uid: SandboxUid,
        permit: &RequestPermit,
    ) -> Result<Option<Self>, Reason> {
        if permit.secrets().next().is_none() {
            return Ok(None);
        }
        let mut used: Vec<&Arc<Secret>> = Vec::new();
        let mut injections = Vec::new();
        for injection in &permit.injections {
            let secret = snapshot.secret(&injection.tenant, &injection.secret);
            let secret = secret.ok_or(Reason::SecretMissing)?;
            let (into, format) = (injection.into.clone(), injection.format.clone());
            injections.push((into, format, Arc::clone(&secret.value)));
            used.push(secret);
        }
        let mut swapped: Vec<(&Replacement, &Arc<Secret>)> = Vec::new();
        for swap in &permit.replacements {
            let secret = snapshot.secret(&swap.tenant, &swap.secret);
            let secret = secret.ok_or(Reason::SecretMissing)?;
            swapped.push((swap, secret));
            used.push(secret);
        }
        // It never leaves: only signatures do, so answers are not searched for it.
        let signature = permit.signature.as_ref().map(|signature| {
            let secret = snapshot.secret(&signature.tenant, &signature.secret);
            let secret = secret.ok_or(Reason::SecretMissing)?;
            Ok(Arc::clone(&secret.value))
        });
        let signature = signature.transpose()?;
        let key = snapshot.placeholders.as_ref();
        let in_place = |place| {
            let here = swapped
                .iter()
                .filter(|(swap, _)| swap.places.contains(&place));
            let pairs = here.filter_map(|(swap, secret)| {
                let placeholder = key?.placeholder(uid, &swap.secret);
                Some((placeholder, Arc::clone(&secret.value)))
            });
            Swaps::new(pairs)
        };
        Ok(Some(Self {
            injections,
            header: in_place(Place::Header),
            query: in_place(Place::Query),
            path: in_place(Place::Path),
            body: in_place(Place::Body),
            signature,
            needles: used
                .iter()
                .filter_map(|secret| secret.needles().map(Arc::clone))
                .collect(),
            secrets: used
                .iter()
                .map(|secret| Arc::clone(&secret.value))
                .collect(),
        }))
    }

    /// A search for the secrets; none when they are all too short to look for.
    pub(super) fn redactor(&self) -> Option<Redactor> {
        Redactor::new(&self.needles)
    }
}

/// Bytes that are wiped when everything that shares them is gone.
struct Wiped(Zeroizing<Vec<u8>>);

impl AsRef<[u8]> for Wiped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Bytes with a secret in them.
fn wiped(bytes: Vec<u8>) -> bytes::Bytes {
    bytes::Bytes::from_owner(Wiped(Zeroizing::new(bytes)))
}
