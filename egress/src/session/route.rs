//! Where a client that asks the proxy for a host is connected to.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use causeway_policy::Denial;
use causeway_types::{DomainName, Reason};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;

use super::{Asked, Session, denial};
use crate::dial::dial;
use crate::dns::{self, Directory};
use crate::engine::Host;
use crate::judge;
use crate::pins::{synthesise, upstream};

/// Names that the proxy looks up for one sandbox, each second and at a time: as many as the
/// resolver answers.
const LOOKUPS_PER_SECOND: u32 = 200;
const LOOKUPS_AT_A_TIME: u32 = 100;
/// How long one address has before the next is tried as well (RFC 8305, section 5).
const STAGGER: Duration = Duration::from_millis(250);

impl Session {
    /// Resolves, judges and connects: the session that goes on from there, or why there is none.
    pub(crate) async fn route(
        self: &Arc<Self>,
        host: &Host,
        port: u16,
    ) -> Result<Arc<Self>, Denial> {
        if port == 0 {
            return Err(denial(Reason::BadName));
        }
        let asked = match host {
            Host::Name(name) => Asked::Name(name.clone()),
            Host::Address(_) => Asked::Address,
        };
        let destinations = match host {
            Host::Address(IpAddr::V4(address)) => vec![synthesise(*address)],
            Host::Address(IpAddr::V6(address)) => vec![*address],
            Host::Name(name) => self.look_up(name, port).await?,
        };
        let (mut permitted, mut refused) = (Vec::new(), None);
        for destination in destinations {
            let session = self.towards(destination, port, asked.clone());
            match session.may_connect() {
                Ok(()) => permitted.push(session),
                Err(denial) => refused = refused.or(Some(denial)),
            }
        }
        if permitted.is_empty() {
            return Err(refused.unwrap_or(denial(Reason::Unresolved)));
        }
        let connected = first_to_connect(permitted).await;
        connected.ok_or(denial(Reason::UpstreamUnreachable))
    }

    /// The addresses of a name, pinned for the sandbox as if it had asked the resolver.
    async fn look_up(&self, name: &DomainName, port: u16) -> Result<Vec<Ipv6Addr>, Denial> {
        let (_snapshot, sandbox) = self.current()?;
        let limited = || denial(Reason::LimitReached);
        let rate = &self.activity.lookups;
        if !rate.take(Some(LOOKUPS_PER_SECOND), Instant::now()) {
            return Err(limited());
        }
        let places = &self.activity.looking_up;
        let _place = places.take(LOOKUPS_AT_A_TIME).ok_or_else(limited)?;
        let asker = (self.shared.asker(self.source)).ok_or(denial(Reason::UnknownSandbox))?;
        let found = dns::lookup(&self.shared.resolver, &*asker, name).await;
        let found = found.map_err(|reason| {
            let known = judge::unresolved(&sandbox.policy, name, port);
            known
                .filter(|_| reason == Reason::NameDenied)
                .unwrap_or(denial(reason))
        })?;
        let now = Instant::now();
        for address in &found.addresses {
            (self.shared.pins).insert(self.uid, *address, name, found.ttl, now);
        }
        Ok(found.addresses)
    }

    /// The same client on its way to a destination.
    fn towards(&self, destination: Ipv6Addr, port: u16, asked: Asked) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(&self.shared),
            source: self.source,
            destination,
            port,
            activity: Arc::clone(&self.activity),
            asked: Some(asked),
            ready: Mutex::default(),
            uid: self.uid,
            started: self.started,
        })
    }

    /// Whether any connection to the destination can be permitted. An address that the resolver
    /// gave stands for its names: which of them is meant shows later.
    fn may_connect(&self) -> Result<(), Denial> {
        let (by_address, named) = self.targets(false);
        let (_snapshot, sandbox) = self.current()?;
        let judge = |target| judge::connection(&sandbox.policy, target);
        let by_name = matches!(self.asked, Some(Asked::Name(_)));
        let mut refused = None;
        for target in named.iter().chain((!by_name).then_some(&by_address)) {
            match judge(target) {
                Ok(_permit) => return Ok(()),
                Err(denial) => refused = refused.or(Some(denial)),
            }
        }
        let mut refused = refused.unwrap_or(denial(Reason::AddressDenied));
        // Who asks for an address shows what is wanted.
        if refused.reason == Reason::NoName {
            refused.reason = Reason::AddressDenied;
        }
        Err(refused)
    }
}

/// Connects to the first that answers, trying one more after each pause or failure.
async fn first_to_connect(sessions: Vec<Arc<Session>>) -> Option<Arc<Session>> {
    let mut waiting = sessions.into_iter();
    let mut attempts = FuturesUnordered::new();
    loop {
        let next = waiting.next();
        if next.is_none() && attempts.is_empty() {
            return None;
        }
        let last = next.is_none();
        attempts.extend(next.map(attempt));
        let ended = if last {
            attempts.next().await
        } else {
            match tokio::time::timeout(STAGGER, attempts.next()).await {
                Ok(ended) => ended,
                Err(_elapsed) => continue,
            }
        };
        if let Some(Some((session, stream))) = ended {
            session.keep_ready(stream);
            return Some(session);
        }
    }
}

async fn attempt(session: Arc<Session>) -> Option<(Arc<Session>, TcpStream)> {
    let address = upstream(session.destination);
    let stream = dial(session.source, address, session.port).await.ok()?;
    Some((session, stream))
}
