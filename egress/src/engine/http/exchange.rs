//! One request and its answer.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use causeway_policy::{CanonicalPath, Denial, RequestPermit};
use causeway_types::Reason;
use http::header::HOST;
use http::request::Parts;
use http::uri::{PathAndQuery, Scheme as UriScheme};
use http::{HeaderValue, Method, Request, Response, Uri, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use super::websocket::{self, Extended};
use super::{Entry, Http, Scheme};
use crate::audit::{Outcome, Protocol};
use crate::engine::authority::{self, Authority};
use crate::engine::body::{Body, Watched};
use crate::engine::headers::{check_framing, check_method, strip_hop_by_hop};
use crate::engine::refuse::{self, About};
use crate::engine::secrets::{Carried, Guard, RequestBody, Unsigned, outgoing};
use crate::engine::upgrade;
use crate::engine::upstream::{Upstream, UpstreamError};
use crate::judge::{self, Subject, Target};
use crate::session::{denial, set_rule};
use crate::state::Snapshot;
use crate::trust::HttpVersion;

/// Where a request goes and what it asks for, in canonical form.
struct Asked {
    authority: Authority,
    target: Target,
    method: String,
    path: CanonicalPath,
}

/// What an answer's body keeps: the entry, and the connection that is given back at its end.
struct Answering {
    http: Arc<Http>,
    entry: Arc<Entry>,
    upstream: Upstream,
}

impl Http {
    /// Answers a request, from the upstream or with a refusal.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        websocket::as_upgrade(&mut parts);
        let asked = match self.understand(&parts) {
            Ok(asked) => asked,
            Err(reason) => return self.refuse(&parts, None, &denial(reason)),
        };
        if let Some(denial) = &self.refused {
            return self.refuse(&parts, Some(&asked), denial);
        }
        // Registered first and judged after: see `flows`.
        let subject = Subject::Request(
            asked.target.clone(),
            asked.method.clone(),
            asked.path.clone(),
        );
        let flow = self.session.activity.flows.register(subject);
        let (snapshot, permit) = match self.judge(&asked) {
            Ok(permitted) => permitted,
            Err(denial) => return self.refuse(&parts, Some(&asked), &denial),
        };
        let entry = Arc::new(Entry::new(Arc::clone(&self.session), flow, permit.clone()));
        let forward = self.forward(&snapshot, &permit, &asked, parts, body, &entry);
        let forwarded = tokio::select! {
            biased;
            reason = entry.flow().cut() => Err(reason.into()),
            forwarded = forward => forwarded,
        };
        let response = match forwarded {
            Ok(response) => response,
            Err(UpstreamError { reason }) => {
                // HTTP/2 does not say why a body of ours broke off.
                let reason = entry.cut(reason);
                let rule = permit.rule.clone();
                refuse::response(&Denial { reason, rule }, asked.about())
            }
        };
        entry.answered(response.status().as_u16());
        response
    }

    /// Reads what the request asks for, if it can be read in one way only.
    fn understand(&self, parts: &Parts) -> Result<Asked, Reason> {
        check_framing(&parts.headers, parts.version)?;
        check_method(&parts.method, false)?;
        let authority = authority::of_request(parts)?;
        let connection = match &self.scheme {
            Scheme::Http => None,
            Scheme::Https(target) => Some(target),
        };
        let target = authority::target(&self.session, connection, parts, &authority)?;
        let path =
            CanonicalPath::parse(parts.uri.path()).map_err(|_ambiguous| Reason::AmbiguousPath)?;
        Ok(Asked {
            authority,
            target,
            method: parts.method.as_str().to_owned(),
            path,
        })
    }

    fn judge(&self, asked: &Asked) -> Result<(Arc<Snapshot>, RequestPermit), Denial> {
        let (snapshot, sandbox) = self.session.current()?;
        let rate = sandbox.policy.limits().requests_per_second;
        if !self.session.activity.requests.take(rate, Instant::now()) {
            return Err(denial(Reason::LimitReached));
        }
        let permit = judge::request(&sandbox.policy, &asked.target, &asked.method, &asked.path)?;
        let refuse = |reason| Denial {
            reason,
            rule: permit.rule.clone(),
        };
        let secrets = permit.secrets().next().is_some();
        if secrets && !asked.target.tls {
            return Err(refuse(Reason::SecretOnPlaintext));
        }
        // The answer to TRACE is the request, with the secret in it (RFC 9110, section 9.3.8).
        if secrets && asked.method == Method::TRACE.as_str() {
            return Err(refuse(Reason::Unsupported));
        }
        Ok((snapshot, permit))
    }

    async fn forward(
        self: &Arc<Self>,
        snapshot: &Snapshot,
        permit: &RequestPermit,
        asked: &Asked,
        mut parts: Parts,
        body: Incoming,
        entry: &Arc<Entry>,
    ) -> Result<Response<Body>, UpstreamError> {
        let client = parts.extensions.remove::<OnUpgrade>();
        let extended = parts.extensions.remove::<Extended>();
        let protocol = strip_hop_by_hop(&mut parts.headers);
        let metrics = &self.session.shared.metrics;
        let carried = Carried::new(snapshot, self.session.uid(), permit)?.map(Arc::new);
        let mut target = None;
        let mut injected = Vec::new();
        if let Some(carried) = &carried {
            let written = carried.write_head(&mut parts.headers, &asked.path, parts.uri.query())?;
            metrics.injections_total.add(written.injections);
            metrics.replacements_total.add(written.replacements);
            target = Some(written.target);
            injected = written.injected;
        }
        let upgrading = client
            .zip(protocol)
            .filter(|(_client, protocol)| upgrade::may_change_to(protocol))
            .filter(|_| parts.version == Version::HTTP_11 || extended.is_some());
        if let Some((_client, protocol)) = &upgrading {
            upgrade::request(&mut parts.headers, protocol.clone());
        }
        let kept = Arc::clone(entry);
        let cut = entry.flow().watch();
        let counter = Arc::clone(&entry.bytes_out);
        let body = Watched::new(body, cut, counter, kept, drop).without_trailers(injected);
        let shared = &self.session.shared;
        let body = match (&carried, &target) {
            (Some(carried), Some(path)) if carried.signs() => {
                let unsigned = Unsigned {
                    method: parts.method.as_str(),
                    authority: &asked.authority.text(),
                    target: path.clone(),
                };
                let signed = carried
                    .sign(unsigned, &mut parts.headers, body, shared)
                    .await?;
                target = Some(signed.0);
                signed.1
            }
            _ => outgoing(carried.as_ref(), &mut parts.headers, body, entry, shared).await?,
        };
        let request = Request::from_parts(parts, body);
        let asked = Addressed { asked, target };
        let (mut response, upstream) = match extended {
            None => self.send(&asked, request, &entry.bytes_out).await?,
            Some(_) => self.send_alone(&asked, request, &entry.bytes_out).await?,
        };
        metrics.requests_total.add(1);
        let guard = || Guard::new(carried.as_ref()?, entry, metrics);
        let joined = upgrading.is_some_and(|(client, _protocol)| {
            upgrade::join(
                &self.tasks,
                client,
                &mut response,
                Arc::clone(entry),
                guard(),
            )
        });
        let mut answer = self.answer_from(response, upstream, entry, joined, guard())?;
        if let Some(extended) = extended {
            websocket::as_connect(&extended, &mut answer, joined)?;
        }
        Ok(answer)
    }

    /// Sends the request on an HTTP/1.1 connection that is new and for nothing else.
    async fn send_alone(
        &self,
        addressed: &Addressed<'_>,
        request: Request<RequestBody>,
        sent: &AtomicU64,
    ) -> Result<(Response<Incoming>, Upstream), UpstreamError> {
        let config = self
            .session
            .shared
            .snapshot()
            .trust
            .client(HttpVersion::Http1);
        let target = &addressed.asked.target;
        let mut upstream = self.pool.connect_with(target, Some(&config)).await?;
        let request = addressed.write(request, upstream.version())?;
        let sent = upstream.send(request, sent).await;
        let response = sent.map_err(|(error, _unsent)| error)?;
        Ok((response, upstream))
    }

    /// Sends the request on a connection that is open, or on a new one when that one was closed
    /// before the request could begin.
    async fn send(
        &self,
        addressed: &Addressed<'_>,
        request: Request<RequestBody>,
        sent: &AtomicU64,
    ) -> Result<(Response<Incoming>, Upstream), UpstreamError> {
        let target = &addressed.asked.target;
        let (mut upstream, used) = self.pool.take(target).await?;
        let request = addressed.write(request, upstream.version())?;
        match upstream.send(request, sent).await {
            Ok(response) => Ok((response, upstream)),
            Err((_closed, Some(unsent))) if used => {
                let mut upstream = self.pool.connect(target).await?;
                let request = addressed.write(unsent, upstream.version())?;
                match upstream.send(request, sent).await {
                    Ok(response) => Ok((response, upstream)),
                    Err((error, _unsent)) => Err(error),
                }
            }
            Err((error, _unsent)) => Err(error),
        }
    }

    fn answer_from(
        self: &Arc<Self>,
        response: Response<Incoming>,
        upstream: Upstream,
        entry: &Arc<Entry>,
        joined: bool,
        mut guard: Option<Guard>,
    ) -> Result<Response<Body>, UpstreamError> {
        let (mut parts, body) = response.into_parts();
        let searched = guard.as_mut().map(|guard| guard.head(&mut parts));
        let searched = searched.transpose()?;
        let protocol = strip_hop_by_hop(&mut parts.headers);
        if let Some(protocol) = protocol.filter(|_| joined) {
            upgrade::request(&mut parts.headers, protocol);
        }
        // The version of this hop is ours.
        parts.version = Version::default();
        let answering = Answering {
            http: Arc::clone(self),
            entry: Arc::clone(entry),
            upstream,
        };
        let cut = entry.flow().watch();
        let counter = Arc::clone(&entry.bytes_in);
        let body = Watched::new(body, cut, counter, answering, Answering::give_back);
        let mut body = body.boxed_unsync();
        if let (Some(guard), Some(searched)) = (guard, searched) {
            body = guard.body(&searched, &mut parts.headers, body);
        }
        Ok(Response::from_parts(parts, body))
    }

    /// Counts, notes and words a refusal.
    fn refuse(&self, parts: &Parts, asked: Option<&Asked>, denial: &Denial) -> Response<Body> {
        let about = match asked {
            Some(asked) => asked.about(),
            None => About {
                method: Some(parts.method.as_str()),
                ..About::default()
            },
        };
        let response = refuse::response(denial, about);
        let session = &self.session;
        session.shared.metrics.refused(denial.reason);
        let mut record = session.record(Protocol::Http, Outcome::Deny);
        record.name = about.name.cloned();
        record.method = about.method.map(ToOwned::to_owned);
        record.path = about.path.map(ToOwned::to_owned);
        record.status = Some(response.status().as_u16());
        record.reason = Some(denial.reason);
        set_rule(&mut record, denial.rule.as_deref());
        session.shared.audit.record(record);
        response
    }
}

impl Asked {
    fn about(&self) -> About<'_> {
        About {
            name: self.authority.name(),
            method: Some(&self.method),
            path: Some(self.path.as_str()),
        }
    }
}

impl Answering {
    /// The answer was read to its end, so the connection can carry the next request.
    fn give_back(self) {
        let Self {
            http,
            entry,
            upstream,
        } = self;
        if let Subject::Request(target, ..) = entry.flow().subject() {
            http.pool.give_back(target.name.clone(), upstream);
        }
    }
}

/// A request, and the path and query with its secrets, when it has any.
struct Addressed<'a> {
    asked: &'a Asked,
    target: Option<PathAndQuery>,
}

impl Addressed<'_> {
    /// Writes the canonical path and the one authority into the request, in the form of
    /// `version`.
    fn write(
        &self,
        request: Request<RequestBody>,
        version: HttpVersion,
    ) -> Result<Request<RequestBody>, Reason> {
        let (mut parts, body) = request.into_parts();
        let path = if let Some(target) = &self.target {
            target.clone()
        } else {
            let path = match parts.uri.query() {
                Some(query) => format!("{}?{query}", self.asked.path),
                None => self.asked.path.to_string(),
            };
            PathAndQuery::try_from(path).map_err(|_malformed| Reason::AmbiguousPath)?
        };
        let authority = self.asked.authority.text();
        match version {
            HttpVersion::Http1 => {
                let host =
                    HeaderValue::try_from(authority).map_err(|_malformed| Reason::BadName)?;
                parts.headers.insert(HOST, host);
                parts.uri = Uri::from(path);
                parts.version = Version::HTTP_11;
            }
            HttpVersion::Http2 => {
                parts.headers.remove(HOST);
                parts.uri = Uri::builder()
                    .scheme(UriScheme::HTTPS)
                    .authority(authority)
                    .path_and_query(path)
                    .build()
                    .map_err(|_malformed| Reason::BadName)?;
                parts.version = Version::HTTP_2;
            }
        }
        Ok(Request::from_parts(parts, body))
    }
}
