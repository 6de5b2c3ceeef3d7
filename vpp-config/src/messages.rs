//! The messages, each with its name and CRC.
//!
//! VPP computes a message's CRC from its definition: a VPP that offers the same name and CRC has
//! the same layout. One declaration here is one line for the name and CRC of the request, its
//! fields, and the CRC of the reply.
//!
//! - A [`Request`] is answered by one reply.
//! - A [`Dump`] is answered by any number of details, and by nothing at its end.
//! - A [`Get`] is answered by details and a reply, which may say to go on from a cursor.
//! - An [`EventMessage`] comes unasked once it has been asked for.
//!
//! Causeway's dataplane uses those of [`attach`], [`classify`], [`feature`], [`interface`], [`ip`],
//! [`l2`], [`memclnt`] and [`neighbor`]. The others are for whoever uses this library otherwise; all
//! are checked against VPP's definitions, and [`abf`], [`acl`], [`policer`], [`punt`], [`sr`] and
//! [`urpf`] on a live VPP as well.

#![expect(
    clippy::unreadable_literal,
    reason = "CRCs are written as VPP's own files have them, to be found there"
)]

#[macro_use]
mod declare;
mod kinds;

pub mod abf;
pub mod acl;
pub mod attach;
pub mod classify;
pub mod feature;
pub mod interface;
pub mod ip;
pub mod l2;
pub mod memclnt;
pub mod nd;
pub mod neighbor;
pub mod policer;
pub mod punt;
pub mod reply;
pub mod sr;
pub mod trace;
pub mod translate;
pub mod urpf;
pub mod vlib;

#[cfg(test)]
mod tests;

pub use kinds::{
    Body, Copied, CopyError, Declared, Dump, EventMessage, Get, Message, MessageId, Reply,
    ReplyError, Request, RetvalPlace, Role,
};

/// Every message that is declared here.
pub fn declared() -> impl Iterator<Item = &'static Declared> {
    DECLARED.iter().copied().flatten()
}

const DECLARED: &[&[Declared]] = &[
    abf::DUMPS,
    abf::REQUESTS,
    acl::DUMPS,
    acl::REQUESTS,
    attach::DUMPS,
    attach::REQUESTS,
    classify::DUMPS,
    classify::REQUESTS,
    feature::REQUESTS,
    interface::DUMPS,
    interface::EVENTS,
    interface::REQUESTS,
    ip::DUMPS,
    ip::GETS,
    ip::REQUESTS,
    l2::DUMPS,
    l2::REQUESTS,
    memclnt::REQUESTS,
    nd::REQUESTS,
    neighbor::DUMPS,
    neighbor::EVENTS,
    neighbor::REQUESTS,
    policer::DUMPS,
    policer::REQUESTS,
    punt::DUMPS,
    punt::REQUESTS,
    sr::DUMPS,
    sr::REQUESTS,
    trace::DUMPS,
    trace::REQUESTS,
    translate::GETS,
    translate::REQUESTS,
    urpf::DUMPS,
    urpf::REQUESTS,
    vlib::REQUESTS,
];
