#![no_main]
//! See `causeway_fuzz::socks_request`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| causeway_fuzz::socks_request(data));
