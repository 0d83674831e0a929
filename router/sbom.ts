import { execFileSync } from 'node:child_process';

/** A package whose code is in the built files. */
export interface BundledPackage {
  readonly name: string;
  readonly version: string;
}

interface Component {
  readonly 'bom-ref': string;
  readonly name: string;
  readonly version: string;
}

interface Bom {
  readonly serialNumber: string;
  readonly metadata: { readonly timestamp: string; readonly component: Component };
  readonly components: readonly Component[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
}

/**
 * The software bill of materials of the built package, CycloneDX 1.5 JSON: what npm lists for the workspace, limited to the packages
 * whose code the bundle contains. The same sources give the same text.
 *
 * @throws an error if npm does not know one of the packages
 */
export function sbomOf(workspace: string, product: BundledPackage, bundled: readonly BundledPackage[]): string {
  const npm = ['sbom', '--sbom-format', 'cyclonedx', '--package-lock-only', '--include=dev'];
  // Options of the npm that runs this build, such as --workspace, are not those of this one.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('npm_')));
  const limits = { cwd: workspace, env, encoding: 'utf8', maxBuffer: 2 ** 28 } as const;
  const { serialNumber: _serial, ...all } = JSON.parse(execFileSync('npm', npm, limits)) as Bom;
  const nameOf = ({ name, version }: BundledPackage): string => `${name}@${version}`;
  const wanted = new Set(bundled.map(nameOf));
  const components = all.components
    .filter((each) => wanted.has(nameOf(each)))
    // npm marks them as development dependencies of the workspace; the product contains their code.
    .map((each) => ({ ...each, scope: 'required', properties: [] }));
  const missing = [...wanted].filter((each) => !components.some((component) => nameOf(component) === each));
  if (missing.length > 0)
    throw new Error(`the bundle contains packages that npm sbom does not list: ${missing.join(', ')}`);
  const refs = new Set(components.map((each) => each['bom-ref']));
  const own = nameOf(product);
  const { timestamp: _time, component: _workspace, ...metadata } = all.metadata;
  const purl = `pkg:npm/${own}`;
  const component = { 'bom-ref': own, type: 'application', name: product.name, version: product.version, purl };
  const dependencies = [
    { ref: own, dependsOn: [...refs] },
    ...all.dependencies
      .filter(({ ref }) => refs.has(ref))
      .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((each) => refs.has(each)) })),
  ];
  const bom = { ...all, metadata: { ...metadata, component }, components, dependencies };
  return `${JSON.stringify(bom, null, 2)}\n`;
}
