/** A name of a session or a tree among those of all tenants: length first, so that no name can be another tenant's. */
export const tenantKey = (tenant: string, name: string): string => `${tenant.length}:${tenant}${name}`;
