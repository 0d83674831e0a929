const SECRET = '(?:key|token|secret|password)';
const SECRET_FLAG = new RegExp(`^--.*${SECRET}$`);
/** `NAME=value` of `env`, or after `-e` or `--env=` of a container's command line. */
const SECRET_VARIABLE = new RegExp(`^((?:--env=|-e)?\\w*${SECRET}\\w*)=`, 'i');

/** The words of an engine's command for logs. Keys must not be logged; vLLM's --api-key takes several. */
export function withoutKeys(args: readonly string[]): string[] {
  let isHidden = false;
  return args.map((arg) => {
    const variable = SECRET_VARIABLE.exec(arg)?.[1];
    if (!arg.startsWith('-')) return isHidden ? '…' : variable === undefined ? arg : `${variable}=…`;
    const [flag = ''] = arg.split('=');
    isHidden = SECRET_FLAG.test(flag);
    if (variable !== undefined) return `${variable}=…`;
    return isHidden && arg !== flag ? `${flag}=…` : arg;
  });
}
