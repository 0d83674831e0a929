import fc from 'fast-check';

/**
 * By itself, fast-check makes lists and texts of at most ten elements more than their least, whatever `maxLength` says:
 * what needs a longer history, such as a breaker that opens and closes again, would never be generated.
 */
fc.configureGlobal({ defaultSizeToMaxWhenMaxSpecified: true });

export default fc;
