#![no_main]
//! See `causeway_fuzz::netlink_reply`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| causeway_fuzz::netlink_reply(data));
