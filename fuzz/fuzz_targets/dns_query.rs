#![no_main]
//! See `causeway_fuzz::dns_query`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| causeway_fuzz::dns_query(data));
