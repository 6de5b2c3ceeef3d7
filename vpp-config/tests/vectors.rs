//! The declarations, compared with FD.io's own encoder and definitions.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use vpp_config::messages::memclnt::{
    SOCKCLNT_CREATE_ID, SOCKCLNT_CREATE_REPLY_ID, SockclntCreate, SockclntCreateReply,
};
use vpp_config::messages::{Body, Declared, Role, declared};
use vpp_config::wire::{decode, encode};

const CRCS: &str = include_str!("vectors/crcs.tsv");
const MESSAGES: &str = include_str!("vectors/messages.tsv");

struct Vector {
    name: &'static str,
    role: &'static str,
    bytes: Vec<u8>,
    value: Value,
}

fn vectors() -> Vec<Vector> {
    MESSAGES
        .lines()
        .map(|line| {
            let mut columns = line.split('\t');
            let mut next = || columns.next().unwrap();
            Vector {
                name: next(),
                role: next(),
                bytes: bytes(next()),
                value: serde_json::from_str(next()).unwrap(),
            }
        })
        .collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

fn by_name() -> BTreeMap<&'static str, &'static Declared> {
    declared()
        .map(|declared| (declared.id.name, declared))
        .collect()
}

#[test]
fn each_crc_is_that_of_the_definition() {
    let crcs: BTreeMap<_, _> = CRCS
        .lines()
        .map(|line| line.split_once('\t').unwrap())
        .collect();
    for declared in declared() {
        let crc = format!("{:08x}", declared.id.crc);
        assert_eq!(
            crcs.get(declared.id.name),
            Some(&crc.as_str()),
            "{}",
            declared.id
        );
    }
}

#[test]
fn each_declared_message_has_been_compared() {
    let compared: BTreeSet<_> = vectors().iter().map(|vector| vector.name).collect();
    let missing: Vec<_> = by_name()
        .into_keys()
        .filter(|name| !compared.contains(name))
        .collect();
    assert!(
        missing.is_empty(),
        "run tests/vectors/generate.py for {missing:?}"
    );
}

#[test]
fn each_message_is_laid_out_as_the_other_encoder_does() {
    let known = by_name();
    for vector in vectors() {
        if vector.role == "handshake" {
            continue;
        }
        let declared = known[vector.name];
        let role = match declared.role {
            Role::Request => "request",
            Role::Reply => "reply",
            Role::Dump => "dump",
            Role::Details => "details",
            Role::Get => "get",
            Role::Event => "event",
        };
        assert_eq!(role, vector.role, "{}", vector.name);
        let body = &vector.bytes[declared.header_len()..];
        let copied = (declared.copy)(body).unwrap_or_else(|error| {
            panic!("{}: {error} in {:02x?}", vector.name, vector.bytes);
        });
        assert_eq!(copied.value, vector.value, "{}", vector.name);
        assert_eq!(copied.bytes, body, "{}", vector.name);
    }
}

#[test]
fn the_handshake_is_laid_out_as_the_other_encoder_does() {
    fn check<T: Body>(vector: &Vector) {
        let body = &vector.bytes[2..];
        let message: T = decode(body).unwrap();
        assert_eq!(serde_json::to_value(&message).unwrap(), vector.value);
        assert_eq!(encode(&message).unwrap(), body);
    }
    let mut count = 0;
    for vector in vectors() {
        match vector.name {
            "sockclnt_create" => check::<SockclntCreate>(&vector),
            "sockclnt_create_reply" => check::<SockclntCreateReply>(&vector),
            _ => continue,
        }
        count += 1;
    }
    assert_eq!(count, 4);
    assert_eq!((SOCKCLNT_CREATE_ID, SOCKCLNT_CREATE_REPLY_ID), (15, 16));
}
