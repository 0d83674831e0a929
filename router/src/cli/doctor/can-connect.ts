import { connect } from 'node:net';

/** Whether a ZeroMQ endpoint accepts connections: `tcp://host:port` or `ipc:///path`. */
export function canConnect(endpoint: string, timeoutMs: number): Promise<boolean> {
  const [, host = '', port = ''] = /^tcp:\/\/\[?(.+?)\]?:(\d+)$/.exec(endpoint) ?? [];
  const socket = port === '' ? connect(endpoint.replace(/^ipc:\/\//, '')) : connect(Number(port), host);
  return new Promise((resolve) => {
    const settle = (isOpen: boolean): void => {
      socket.destroy();
      resolve(isOpen);
    };
    socket.setTimeout(timeoutMs, () => settle(false));
    socket.once('connect', () => settle(true));
    socket.once('error', () => settle(false));
  });
}
