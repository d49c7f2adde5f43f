//! Addresses of this machine; see getifaddrs(3).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr::NonNull;

use squall_model::interface::Interface;

/// Most addresses that are returned: a node reports them all.
const INTERFACES_MAX: usize = 16;

/// Returns the addresses at which other machines may reach this one.
pub(crate) fn interfaces() -> io::Result<Vec<Interface>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: the function writes one pointer there, to a list that stays ours until it is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut found, mut next) = (Vec::new(), NonNull::new(first));
    while let Some(entry) = next {
        // SAFETY: an entry of the list, which nothing changes before it is freed.
        let entry = unsafe { entry.as_ref() };
        next = NonNull::new(entry.ifa_next);
        let flags = entry.ifa_flags as libc::c_int;
        let reached = flags & libc::IFF_UP != 0 && flags & libc::IFF_LOOPBACK == 0;
        // SAFETY: both are null, or addresses of the list's entry, with the length that their family has.
        let pair = unsafe { (address(entry.ifa_addr), address(entry.ifa_netmask)) };
        if let (Some(address), Some(mask)) = pair
            && reached
        {
            found.push(interface(address, mask));
        }
    }
    // SAFETY: the list of getifaddrs, freed once; nothing of it is used after this.
    unsafe { libc::freeifaddrs(first) };
    // Those of the link alone (fe80::/10) say nothing without its name.
    found.retain(|network| network.address >> 118 != 0xfe80 >> 6);
    found.sort_unstable();
    found.dedup();
    found.truncate(INTERFACES_MAX);
    Ok(found)
}

/// Reads an address of IPv4 or IPv6. None: it is of another family.
///
/// # Safety
///
/// It is null, or an address as long as its family says, which nothing changes meanwhile.
unsafe fn address(of: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's word; each is read only with the type of its family.
    unsafe {
        match libc::c_int::from(of.as_ref()?.sa_family) {
            libc::AF_INET => {
                let found = of.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(found.sin_addr.s_addr.to_ne_bytes()).into())
            }
            libc::AF_INET6 => {
                let found = of.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(found.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

fn interface(address: IpAddr, mask: IpAddr) -> Interface {
    let prefix = match mask {
        IpAddr::V4(mask) => 96 + mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    Interface { address: as_six(address), prefix: prefix as u8 }
}

/// Returns an address as one of IPv6, as in [`Interface::address`].
pub(crate) fn as_six(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{interface, interfaces};

    #[test]
    fn prefixes_are_those_of_mapped_addresses() {
        let of = |text: &str| text.parse::<IpAddr>().unwrap();
        let one = interface(of("10.1.2.3"), of("255.255.255.0"));
        let near = interface(of("10.1.2.200"), of("255.255.255.0"));
        let far = interface(of("10.1.3.3"), of("255.255.255.0"));
        let six = interface(of("2001:db8::1"), of("ffff:ffff:ffff:ffff::"));
        assert!(one.has(near) && !one.has(far) && !one.has(six));
        assert_eq!((one.prefix, six.prefix), (120, 64));
        assert_eq!(std::net::Ipv6Addr::from_bits(one.address).to_canonical(), of("10.1.2.3"));
    }

    #[test]
    fn no_address_of_this_machine_alone_is_found() {
        let found = interfaces().unwrap();
        let local = |address: u128| std::net::Ipv6Addr::from_bits(address).to_canonical().is_loopback();
        assert!(found.iter().all(|network| !local(network.address) && network.prefix <= 128), "{found:?}");
    }
}
