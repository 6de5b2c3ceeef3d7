#![no_main]
//! See `causeway_fuzz::vpp_reply`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| causeway_fuzz::vpp_reply(data));
