import { lookup } from 'node:dns';
import { BlockList, type LookupFunction, isIP } from 'node:net';

/**
 * Addresses that machines in clouds trust with credentials and where no engine is: link-local networks and metadata
 * services. IPv6 forms with an embedded IPv4 address are listed too, except mapped ones, which BlockList handles.
 */
const privileged = new BlockList();
privileged.addSubnet('169.254.0.0', 16, 'ipv4');
privileged.addSubnet('fe80::', 10, 'ipv6');
for (const around of ['64:ff9b::', '::', '64:ff9b:1::']) privileged.addSubnet(`${around}169.254.0.0`, 112, 'ipv6');
privileged.addSubnet('2002:a9fe::', 32, 'ipv6');
// AWS and Google over IPv6; Azure, Alibaba, Oracle.
for (const address of ['fd00:ec2::254', 'fd20:ce::254']) privileged.addAddress(address, 'ipv6');
for (const address of ['168.63.129.16', '100.100.100.200', '192.0.0.192']) privileged.addAddress(address, 'ipv4');

const privilegedNames: ReadonlySet<string> = new Set([
  'metadata',
  'metadata.google.internal',
  'metadata.goog',
  'instance-data',
  'instance-data.ec2.internal',
]);

const family = (address: string): 'ipv4' | 'ipv6' => (isIP(address) === 6 ? 'ipv6' : 'ipv4');

/** The addresses that workers may have (`--worker-allow`), tested for a URL and for every resolved address. */
export class WorkerAllowlist {
  readonly #networks = new BlockList();
  readonly #globs: string[] = [];
  #hasNetworks = false;

  /** Throws an error for the user at a pattern that is neither a network nor a host name. */
  constructor(patterns: readonly string[]) {
    for (const pattern of patterns) this.#read(pattern.toLowerCase());
  }

  get isLimited(): boolean {
    return this.#hasNetworks || this.#globs.length > 0;
  }

  /**
   * @param host as in a parsed URL, without brackets
   * @returns null, or why a worker may not have this host
   */
  refusalOf(host: string): string | null {
    const name = host.replace(/\.$/, '');
    if (isIP(name) > 0 ? this.#allowsAddress(name, name) : this.#allowsName(name)) return null;
    return this.isLimited
      ? `"${host}" is not allowed by --worker-allow.`
      : `"${host}" is a link-local or metadata address. If an engine has this address, add it to --worker-allow.`;
  }

  /** For connections: refuses a name that resolves to another address now (DNS rebinding). */
  readonly lookup: LookupFunction = (host, options, callback) => {
    lookup(host, { ...options, all: true }, (error, found) => {
      if (error !== null) return callback(error, []);
      const allowed = found.filter(({ address }) => this.#allowsAddress(address, host.replace(/\.$/, '')));
      if (allowed.length === 0) {
        const refusal = new Error('the address is not allowed (--worker-allow)');
        return callback(Object.assign(refusal, { code: 'ADDRESS_NOT_ALLOWED' }), []);
      }
      if (options.all === true) callback(null, allowed);
      else callback(null, allowed[0]!.address, allowed[0]!.family);
    });
  };

  #read(pattern: string): void {
    const [base = '', bits] = pattern.split('/');
    const version = isIP(base);
    const prefix = bits === undefined ? (version === 6 ? 128 : 32) : /^\d{1,3}$/.test(bits) ? Number(bits) : -1;
    if (version > 0 && prefix >= 0 && prefix <= (version === 6 ? 128 : 32)) {
      this.#networks.addSubnet(base, prefix, family(base));
      this.#hasNetworks = true;
    } else if (bits === undefined && /^[a-z\d.*_-]+$/.test(pattern)) this.#globs.push(pattern.replace(/\.$/, ''));
    else
      throw new Error(`--worker-allow: "${pattern}" is neither a network (10.0.0.0/8) nor a host name (*.internal).`);
  }

  /** The addresses of a name are not known here, so networks may still allow it. */
  #allowsName(name: string): boolean {
    if (!this.isLimited) return !privilegedNames.has(name);
    return this.#hasNetworks || this.#fits(name);
  }

  #allowsAddress(address: string, host: string): boolean {
    const bare = address.split('%')[0]!;
    if (this.#networks.check(bare, family(bare))) return true;
    if (privileged.check(bare, family(bare))) return false;
    return !this.isLimited || this.#fits(host);
  }

  #fits(host: string): boolean {
    return this.#globs.some((glob) => {
      // `10.1.*` means addresses, although a name may begin so too (10.1.example.com).
      const isForAddresses = glob !== '*' && !/[a-z]/.test(glob);
      return (!isForAddresses || isIP(host) > 0) && fitsGlob(glob, host);
    });
  }
}

/** Whether `text` matches a pattern in which `*` matches any text. Linear time. */
export function fitsGlob(pattern: string, text: string): boolean {
  const parts = pattern.split('*');
  const first = parts[0]!;
  if (parts.length === 1) return text === first;
  const last = parts.at(-1)!;
  const end = text.length - last.length;
  if (end < first.length || !text.startsWith(first) || !text.endsWith(last)) return false;
  let at = first.length;
  for (const part of parts.slice(1, -1)) {
    const found = text.indexOf(part, at);
    if (found < 0 || found + part.length > end) return false;
    at = found + part.length;
  }
  return true;
}
