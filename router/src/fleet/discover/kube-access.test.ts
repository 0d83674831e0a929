import { deepEqual, equal, match, rejects } from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { findAccess } from './kube-access.ts';

function folderWith(t: TestContext, files: Record<string, string>): string {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-access-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(join(folder, name, '..'), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  return folder;
}

const kubeconfig = (context: string, cluster: object = {}): string =>
  JSON.stringify({
    'current-context': context,
    contexts: [
      { name: 'one', context: { cluster: 'c', user: 'u', namespace: 'rl' } },
      { name: 'two', context: { cluster: 'c', user: 'u' } },
    ],
    clusters: [
      {
        name: 'c',
        cluster: { server: 'https://kube.example:6443/k8s/c-1', 'insecure-skip-tls-verify': true, ...cluster },
      },
    ],
    users: [{ name: 'u', user: { token: 'T' } }],
  });

test('in a pod: the service account, read anew for every request, without a package', async (t) => {
  const folder = folderWith(t, { token: 'one\n', 'ca.crt': 'CA', namespace: 'rl' });
  const env = { KUBERNETES_SERVICE_HOST: 'fd00::1', KUBERNETES_SERVICE_PORT: '6443', HOME: '/nowhere' };
  const access = await findAccess(env, folder, () => Promise.reject(new Error('not asked for')));
  equal(access.server.href, 'https://[fd00::1]:6443/');
  equal(access.namespace, 'rl');
  deepEqual(await access.options(), { ca: 'CA', headers: { authorization: 'Bearer one' } });
  writeFileSync(join(folder, 'token'), 'two');
  deepEqual((await access.options()).headers, { authorization: 'Bearer two' });
  rmSync(join(folder, 'token'));
  await rejects(access.options(), /ENOENT/);
});

test('$KUBECONFIG wins over the service account, ~/.kube/config does not', async (t) => {
  const account = folderWith(t, { token: 'one', 'ca.crt': 'CA' });
  const home = folderWith(t, { '.kube/config': kubeconfig('one'), other: kubeconfig('two') });
  const pod = { KUBERNETES_SERVICE_HOST: '10.0.0.1', KUBERNETES_SERVICE_PORT: '443' };
  equal((await findAccess({ ...pod, HOME: home }, account)).server.host, '10.0.0.1');
  equal((await findAccess({ HOME: home }, account)).namespace, 'rl');
  const named = await findAccess({ ...pod, HOME: home, KUBECONFIG: join(home, 'other') }, account);
  equal(named.server.href, 'https://kube.example:6443/k8s/c-1');
  equal(named.namespace, 'default');
  deepEqual(await named.options(), { rejectUnauthorized: false, headers: { Authorization: 'Bearer T' } });
});

test('no server, a file without a context, a missing package: each has a message for the user', async (t) => {
  const home = folderWith(t, { '.kube/config': kubeconfig('none') });
  await rejects(findAccess({ HOME: '/nowhere' }, '/nowhere'), /neither \$KUBECONFIG nor ~\/\.kube\/config/);
  await rejects(findAccess({ HOME: home }, '/nowhere'), /has no current context/);
  const missing = findAccess({ HOME: home }, '/nowhere', () =>
    Promise.reject(new Error("Cannot find package '@kubernetes/client-node' imported from /there")),
  );
  const error = await missing.catch((reason: unknown) => reason as Error);
  match(
    (error as Error).message,
    /\(Cannot find package '@kubernetes\/client-node'\)\. .*npm install @kubernetes\/client-node/,
  );
});

test('http:// in a kubeconfig: as kubectl asks, without credentials', async (t) => {
  const plain = { server: 'http://127.0.0.1:8001' };
  for (const cluster of [plain, { ...plain, 'insecure-skip-tls-verify': false }]) {
    const home = folderWith(t, { '.kube/config': kubeconfig('one', cluster) });
    const access = await findAccess({ HOME: home }, '/nowhere');
    equal(access.server.href, 'http://127.0.0.1:8001/');
    deepEqual(await access.options(), {});
  }
  const proxied = folderWith(t, { '.kube/config': kubeconfig('one', { ...plain, 'proxy-url': 'http://127.0.0.1:1' }) });
  deepEqual(Object.keys(await (await findAccess({ HOME: proxied }, '/nowhere')).options()), ['agent']);
  const home = folderWith(t, { '.kube/config': kubeconfig('one', { server: 'localhost:8001' }) });
  await rejects(findAccess({ HOME: home }, '/nowhere'), /names no http\(s\):\/\/ server: localhost:8001/);
});
